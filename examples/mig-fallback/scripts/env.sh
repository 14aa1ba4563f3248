# Sourced by the other scripts: paths and required commands.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
while [ ! -d "$here/config" ] && [ "$here" != / ]; do here=$(dirname -- "$here"); done
cluster=${CLUSTER_NAME:-gpu-sim-cluster}
repository=$(CDPATH='' cd -- "$here/../.." && pwd)
PATH="$here/bin:$PATH"
if [ -x "$repository/.venv/bin/apportion" ]; then PATH="$repository/.venv/bin:$PATH"; fi
export PATH

need() {
    command -v "$1" >/dev/null 2>&1 || { echo "$1 is missing: $2" >&2; exit 1; }
}
need apportion "run \`make install\` in $repository"
need kubectl "see https://kubernetes.io/docs/tasks/tools/"
