"""`nvidia-smi` as a POSIX shell script, for images that have a shell and little else.

All texts are rendered in advance and the script selects one. Its last line contains the `Machine` as JSON, for
programs that read it instead of running the script.
"""

from __future__ import annotations

import shlex

import msgspec

from apportion.emulation.nvidia_smi import queries, table
from apportion.emulation.nvidia_smi.command import BAD_ARGUMENT, HELP, NO_DEVICE
from apportion.emulation.nvidia_smi.machine import Machine, decode, encode

MARK = "# view: "


def render(machine: Machine) -> str:
    tables = {str(board.index): table.table(_only(machine, board.index)) for board in machine.boards}
    lists = {str(board.index): table.listing(_only(machine, board.index)) for board in machine.boards}
    return _SCRIPT.format(
        gpus=" ".join(str(board.index) for board in machine.boards),
        ids="\n".join(f"{board.index}|{board.uuid}) gpus={board.index};;" for board in machine.boards),
        all_table=_document(table.table(machine)),
        all_list=_document(table.listing(machine)),
        tables=_cases(tables),
        lists=_cases(lists),
        values=_values(machine),
        units="\n".join(f"{field}) unit={shlex.quote(unit)};;" for field, unit in queries.units().items()),
        aliases="\n".join(f"{alias}) field={field};;" for alias, field in queries.ALIASES.items()),
        help=_document(HELP),
        nothing=table.NOTHING,
        bad=BAD_ARGUMENT,
        none=NO_DEVICE,
        view=MARK + encode(machine),
    )


def read(script: str) -> Machine | None:
    """The machine that a script was made from."""
    for line in reversed(script.splitlines()):
        if line.startswith(MARK):
            try:
                return decode(line.removeprefix(MARK))
            except msgspec.DecodeError:
                return None
    return None


def _only(machine: Machine, index: int) -> Machine:
    return msgspec.structs.replace(machine, boards=tuple(b for b in machine.boards if b.index == index))


def _document(text: str) -> str:
    return f"cat <<'END'\n{text}END"


def _cases(texts: dict[str, str]) -> str:
    return "\n".join(f"{key}) {_document(text)}\n;;" for key, text in texts.items())


def _values(machine: Machine) -> str:
    return "\n".join(
        f"{board.index}:{field}) value={shlex.quote(found.text)};;"
        for board in machine.boards
        for field, found in queries.values(machine, board).items()
    )


_SCRIPT = """\
#!/bin/sh
# nvidia-smi of emulated GPUs. Written by the agent of the node; do not edit.
fail() {{ echo "$1"; exit {bad}; }}
help_text() {{
{help}
}}
list() {{
case "$1" in
all) {all_list}
;;
{lists}
esac
}}
table() {{
case "$1" in
all) {all_table}
;;
{tables}
esac
}}
canonical() {{
field=$1
case "$1" in
{aliases}
esac
}}
unit_of() {{
unit=
case "$1" in
{units}
esac
}}
value_of() {{
case "$1:$2" in
*:timestamp) value=$(date '+%Y/%m/%d %H:%M:%S.000');;
{values}
*) fail "Field \\"$2\\" is not a valid field to query.";;
esac
}}
query() {{
line=
for asked in $(echo "$fields" | tr ',' ' '); do
  canonical "$asked"; unit_of "$field"
  if [ "$1" = header ]; then
    value=$asked
    if [ -n "$unit" ]; then value="$asked [$unit]"; fi
  else
    value_of "$1" "$field"
    if [ -n "$unit" ] && [ "$units" = yes ] && [ "$value" != '[N/A]' ]; then value="$value $unit"; fi
  fi
  if [ -n "$line" ]; then line="$line, $value"; else line=$value; fi
done
echo "$line"
}}
gpus='{gpus}' chosen= action=table fields= format= header=yes units=yes
while [ $# -gt 0 ]; do
  case "$1" in
  -L|--list-gpus) action=list;;
  -h|--help) action=help;;
  -i|--id) shift; chosen=$1;;
  --id=*) chosen=${{1#*=}};;
  --query-gpu=*) action=query; fields=${{1#*=}};;
  --query-gpu) shift; action=query; fields=$1;;
  --format=*) format=${{1#*=}};;
  --format) shift; format=$1;;
  *) fail "Invalid combination of input arguments ($1). Please run 'nvidia-smi -h' for help.";;
  esac
  if [ $# -gt 0 ]; then shift; fi
done
if [ "$action" = help ]; then help_text; exit 0; fi
if [ -n "$chosen" ]; then
  gpus=
  case "$chosen" in
{ids}
  esac
fi
if [ -z "$gpus" ]; then echo '{nothing}'; exit {none}; fi
if [ "$action" = query ]; then
  case ",$format," in *,csv,*) ;; *) fail "--format= is missing: use --format=csv";; esac
  case ",$format," in *,noheader,*) header=no;; esac
  case ",$format," in *,nounits,*) units=no;; esac
  for gpu in $gpus; do
    for asked in $(echo "$fields" | tr ',' ' '); do canonical "$asked"; value_of "$gpu" "$field"; done
    break
  done
  if [ "$header" = yes ]; then query header; fi
  for gpu in $gpus; do query "$gpu"; done
  exit 0
fi
if [ "$action" = table ]; then date '+%a %b %e %H:%M:%S %Y'; fi
if [ -n "$chosen" ]; then "$action" "$gpus"; else "$action" all; fi
exit 0
{view}
"""
