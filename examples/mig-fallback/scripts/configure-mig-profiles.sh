#!/bin/sh
# Sets the MIG layout of each node pool with the node annotation run.ai/mig.config.
# A GPU in use keeps its layout until no pod uses it; the label nvidia.com/mig.config.state shows the state.
set -eu
. "$(dirname -- "$0")/env.sh"

# configure POOL PROFILE...   sets these slices for every GPU of the pool
configure() {
    pool=$1
    shift
    slices=$(printf '\n          - %s' "$@")
    for node in $(kubectl get nodes -l "node-pool=$pool" -o name); do
        kubectl annotate --overwrite "$node" "run.ai/mig.config=version: v1
mig-configs:
  selected:
    - devices: all
      mig-enabled: true
      mig-devices:$slices
"
    done
}

# expect POOL PROFILE COUNT   waits until the nodes of the pool offer this number of devices
expect() {
    resource=$(printf 'nvidia.com/mig-%s' "$2" | sed 's/\./\\./g')
    kubectl wait node -l "node-pool=$1" --for="jsonpath={.status.allocatable.$resource}=$3" --timeout=120s
}

configure small 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb
configure medium 2g.20gb 2g.20gb 2g.20gb 1g.10gb
expect small 1g.10gb 28
expect medium 2g.20gb 12
expect medium 1g.10gb 4

# Additional pools, such as `large`: one slice with the full profile per GPU.
for pool in $(kubectl get nodes -l 'node-pool,node-pool notin (small, medium)' \
    -o 'jsonpath={.items[*].metadata.labels.node-pool}' | tr ' ' '\n' | sort -u); do
    configure "$pool" 7g.70gb
    expect "$pool" 7g.70gb 4
done
