# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Bash reads this before its command (BASH_ENV). Version 3 of the SageMaker SDK starts a training container as
# `bash -c .../sm_train.sh`, a script that ignores SIGTERM and leaves ranks to drivers of its own; where the shell is
# process 1 and a job of that SDK is there, Paceline takes its place and runs what the job's files ask for.
# PACELINE_SDK_DRIVERS=1 leaves the script alone. PACELINE_BASH_ENV, set for all that runs then, marks a job that has
# begun: bash can be process 1 in it too, of a PID namespace of its own.
if [ "$$" = 1 ] && [ -z "${PACELINE_BASH_ENV:-}" ] && [ -e "${SAGEMAKER_BASE_DIR:-/opt/ml}/input/data/sm_drivers/sourcecode.json" ]; then
  case ${PACELINE_SDK_DRIVERS:-0} in
    1 | true | yes | on) ;;
    *) PACELINE_BASH_ENV=1 exec @paceline@ train ;;
  esac
fi
