"""Make the shipped GPU catalog from the table of MIG facts.

    python tools/generate/catalog.py mig-profiles.json

The facts carry prose and sources; the catalog keeps what code reads: geometry, memory, engines, ids, and how
sure we are of each. Models without MIG are listed here, with the memory that their drivers report.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[2] / "src" / "apportion" / "core" / "data" / "models.json"
MIB_PER_GB = 1024

# id, product names, MiB
WITHOUT_MIG = (
    ("k80-12gb", ("Tesla K80", "Tesla-K80"), 11441),
    ("p100-16gb", ("Tesla P100-PCIE-16GB", "Tesla P100-SXM2-16GB"), 16384),
    ("v100-16gb", ("Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB"), 16384),
    ("v100-32gb", ("Tesla V100-SXM2-32GB", "Tesla V100-PCIE-32GB"), 32768),
    ("t4-16gb", ("Tesla T4", "NVIDIA T4"), 15360),
    ("a10-24gb", ("NVIDIA A10",), 23028),
    ("l4-24gb", ("NVIDIA L4",), 23034),
    ("l40-48gb", ("NVIDIA L40",), 46068),
    ("l40s-48gb", ("NVIDIA L40S",), 46068),
    ("rtx-a6000-48gb", ("NVIDIA RTX A6000",), 49140),
    ("rtx-6000-ada-48gb", ("NVIDIA RTX 6000 Ada Generation",), 49140),
)
# The name under which document 002 asks for the whole of its 70 GB card.
ALIASES = {"h200-70gb-emulated": {"7g.70gb": ["7g.80gb"]}}


def main() -> None:
    facts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    models = [model(entry) for entry in facts["models"]] + [plain(*entry) for entry in WITHOUT_MIG]
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in models)
    TARGET.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{TARGET.name}: {len(models)} models")


def model(entry: dict[str, Any]) -> dict[str, Any]:
    aliases = ALIASES.get(entry["id"], {})
    return {
        "id": entry["id"],
        "product_names": entry["product_names"],
        "memory_mib": entry.get("memory_mib_total") or entry["memory_gb"] * MIB_PER_GB,
        "units": entry["memory_slices"],
        "profiles": [profile(item, aliases.get(item["name"], [])) for item in entry["profiles"]],
        "engines": known({key: entry["engines_total"].get(key) for key in sorted(entry["engines_total"])}),
        "pci_device_ids": entry["pci_device_ids"],
        "uncertain": entry["uncertain"],
        "confidence": entry["confidence"],
        "emulated": entry["emulated"],
    }


def profile(item: dict[str, Any], aliases: list[str]) -> dict[str, Any]:
    engines = {"copy": item["copy_engines"], **item["media"]}
    return {
        "name": item["name"],
        "size": item["size"],
        "starts": item["placements"],
        "limit": item["max_instances"],
        "memory_gb": item["memory_gb"],
        "memory_mib": item["memory_mib"],
        "compute": item["compute_slices"],
        "gi_profile_id": item["gi_profile_id"],
        "nvml_profile_index": item["nvml_profile_index"],
        "ci_profile_index": item["ci_nvml_profile_index"],
        "multiprocessors": item["sm_count"],
        "engines": known({key: engines[key] for key in sorted(engines)}),
        "graphics": item["graphics"],
        "aliases": [*item.get("alternate_names", []), *aliases],
        "uncertain": item["uncertain"],
        "uncertain_fields": item.get("uncertain_fields", []),
    }


def plain(name: str, product_names: tuple[str, ...], memory_mib: int) -> dict[str, Any]:
    return {"id": name, "product_names": product_names, "memory_mib": memory_mib, "confidence": "verified"}


def known(engines: dict[str, int | None]) -> dict[str, int]:
    return {name: count for name, count in engines.items() if count}


if __name__ == "__main__":
    main()
