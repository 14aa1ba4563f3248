#!/bin/sh
# New serving certificates for the webhook, and deploy/04-webhook-config-patched.yaml with the CA that signs them.
# The CA stays; `--new-ca` replaces it, with both trusted until every replica has changed over.
set -eu
. "$(dirname -- "$0")/../../scripts/env.sh"
apportion certs --namespace gpu-webhook --service gpu-webhook --secret gpu-webhook-certs \
    --configuration-out "$here/webhook/deploy/04-webhook-config-patched.yaml" "$@"
