#!/bin/sh
# No Go module is needed: the webhook is part of `apportion`. Only checks that it is installed.
set -eu
. "$(dirname -- "$0")/../../scripts/env.sh"
echo "the webhook is part of $(apportion --version)"
