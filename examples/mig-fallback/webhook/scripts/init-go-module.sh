#!/bin/sh
# There is no module to initialise: the webhook is part of `apportion`. Only checks that it is there.
set -eu
. "$(dirname -- "$0")/../../scripts/env.sh"
echo "the webhook is part of $(apportion --version)"
