#!/bin/sh
# Issues new serving certificates for the webhook, and writes deploy/04-webhook-config-patched.yaml with the CA that signs them.
# The CA is kept; `--new-ca` replaces it, and both are trusted until every replica uses the new one.
set -eu
. "$(dirname -- "$0")/../../scripts/env.sh"
apportion certs --namespace gpu-webhook --service gpu-webhook --secret gpu-webhook-certs \
    --configuration-out "$here/webhook/deploy/04-webhook-config-patched.yaml" "$@"
