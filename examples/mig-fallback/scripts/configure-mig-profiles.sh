#!/bin/sh
# How the GPUs of each node pool are cut: written on the nodes as the annotation run.ai/mig.config.
# A GPU that pods use keeps its layout until it is empty; the label nvidia.com/mig.config.state says so.
set -eu
. "$(dirname -- "$0")/env.sh"

# configure POOL PROFILE...   cuts every GPU of the pool into these slices
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

# expect POOL PROFILE COUNT   waits until the pool's nodes show so many devices
expect() {
    resource=$(printf 'nvidia.com/mig-%s' "$2" | sed 's/\./\\./g')
    kubectl wait node -l "node-pool=$1" --for="jsonpath={.status.allocatable.$resource}=$3" --timeout=120s
}

configure small 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb
configure medium 2g.20gb 2g.20gb 2g.20gb 1g.10gb
expect small 1g.10gb 28
expect medium 2g.20gb 12
expect medium 1g.10gb 4

# Pools that were added, such as the document's `large`: one slice for each GPU.
for pool in $(kubectl get nodes -l 'node-pool,node-pool notin (small, medium)' \
    -o 'jsonpath={.items[*].metadata.labels.node-pool}' | tr ' ' '\n' | sort -u); do
    configure "$pool" 7g.70gb
    expect "$pool" 7g.70gb 4
done
