#!/bin/sh
# Evaluates a checkpoint, or a Run, on one GPU, $DEVICE_ID (0 by default).
set -eu
if [ $# -lt 2 ]; then
  echo "usage: sh run_eval_gpu.sh DATASET_PATH CHECKPOINT_PATH [more arguments of eval.py]" >&2
  exit 2
fi
data=$1 checkpoint=$2
shift 2
exec sh "$(dirname -- "$0")/run_eval.sh" "$data" "$checkpoint" --device_target GPU "$@"
