"""What an agent finds when it starts: slices, claims and its own records, brought together.

Nothing is destroyed here. What matches is adopted. Slices that the records lack, but the status of a claim names, are
recorded again. All other slices are reported and not changed.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import msgspec

from apportion.apis.custom_resources import claims
from apportion.apis.identities import DeviceUUID
from apportion.cluster.errors import ClusterError
from apportion.node.cluster.claim_store import ClaimStore, place_of
from apportion.node.hardware.partitioner import Partitioner
from apportion.node.hardware.slice_records import SliceRecord, SliceRecords

log = logging.getLogger(__name__)


async def adopt(driver: Partitioner, records: SliceRecords, store: ClaimStore) -> None:
    await _named_by_claims(records, store)
    present = {found.place: found for found in await driver.slices()}
    for entry in records:
        found = present.get(entry.place)
        if entry.making and found is not None and found.uuid and entry.owns(found):
            records.put(msgspec.structs.replace(entry, uuid=found.uuid, making=False))
            log.info("adopted %s for claim %s", found.uuid, entry.claim)


async def _named_by_claims(records: SliceRecords, store: ClaimStore) -> None:
    """Claims beyond `created` hold their places, also if the records were lost.

    Only with the uuid of their slice: anybody can write a claim, and a slice that is merely where such a
    claim says may be somebody else's.
    """
    for claim in store.all():
        beyond = claim.state in (claims.PROCESSING, claims.IN_USE)
        if not beyond or not claim.status.mig_uuid or records.get(claim.name):
            continue
        place = place_of(claim)
        rival = records.overlapping(claim.name, place)
        if rival is not None:
            text = f"its placement {place} overlaps claim {rival.claim} ({rival.place}), which was recorded earlier"
            log.error("claim %s: %s", claim.name, text)
            with suppress(ClusterError):
                await store.set_state(claim, claim.state, message=f"Allocation is {claim.state}: {text}")
            continue
        records.put(SliceRecord(claim.name, claim.pod_uid, place, DeviceUUID(claim.status.mig_uuid)))
