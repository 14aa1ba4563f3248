#!/bin/sh
# Starts a simulated GPU cluster: two workers with four H200 each, with static MIG devices. Idempotent.
set -eu
. "$(dirname -- "$0")/env.sh"

if kubectl --context "$cluster" get --raw /readyz >/dev/null 2>&1; then
    echo "cluster $cluster is already running"
    kubectl config use-context "$cluster"
else
    apportion up --detach --select --name "$cluster" \
        --topology "$here/config/kind-gpu-cluster.yaml" --topology "$here/config/fake-gpu-values.yaml"
fi

echo "installing the GPU simulator"
kubectl apply -f "$here/manifests/fake-gpu-operator.yaml"
kubectl rollout status -n gpu-operator deployment/fake-gpu-operator --timeout=120s

"$here/scripts/configure-mig-profiles.sh"
