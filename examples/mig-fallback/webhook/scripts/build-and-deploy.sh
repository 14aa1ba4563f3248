#!/bin/sh
# Installs the webhook. There is no image to build or to load: embedded nodes run `apportion` itself.
set -eu
. "$(dirname -- "$0")/../../scripts/env.sh"
deploy=$here/webhook/deploy

kubectl apply -f "$deploy/00-namespace.yaml"
"$here/webhook/scripts/generate-certs.sh"
kubectl apply -f "$deploy"
kubectl rollout status -n gpu-webhook deployment/gpu-webhook --timeout=120s
