#!/bin/sh
# Blocks that the stages do not divide: all are planned, none twice; and plans edited by hand.
. "$(dirname "$0")/zplan_lib.sh"

profile "$(entry T4 block "$(point 1 1 2), $(point 64 64 128)"), $(free_ends T4)"
inputs="--model model.json --profile profile.json --seq 64 --batch 8"

# heaviest L N EXPECTED: one stage per GPU of N equal ones
heaviest() {
    model "$1"
    status_is 0 solve --cluster "1x(${2}xT4)" $inputs --stages "$2" --max-gpus-per-stage 1 || return
    equal "blocks of $1 on $2" "$(blocks plan.json | awk '
        NR == 1 ? $1 != 0 : $1 != end { bad = 1 } { end = $2 } $2 <= $1 { bad = 1 }
        $2 - $1 > most { most = $2 - $1 } END { print bad + 0, NR, end, most }')" "0 $2 $1 $3"
    status_is 0 check plan.json
}
heaviest 30 4 8
heaviest 7 2 4
heaviest 70 12 6

model 3
refused 2 "3 blocks" solve --cluster "1x(4xT4)" $inputs --stages 4
refused 2 "GPUs" solve --cluster "1x(2xT4)" $inputs --stages 3
# Without the wish the fourth GPU is used in a group or named as unused.
status_is 0 solve --cluster "1x(4xT4)" $inputs --max-gpus-per-stage 1
equal "GPUs named" "$(grep -c '"gpu":' plan.json)" 4
grep -q '"reason":' plan.json || fail "no reason for the unused GPU"

# Edited plans: a block in no stage, in two, stages swapped, another number of blocks.
model 30
status_is 0 solve --cluster "1x(2xT4)" $inputs --stages 2 --max-gpus-per-stage 1
edited() {
    sed "$1" plan.json >edited.json
    cmp -s plan.json edited.json && fail "edit $1 changed nothing"
    status_is 2 check edited.json && { grep -q -F "$2" err || fail "edit $1: $(cat err)"; }
}
edited 's/\[15, 30\]/[15, 28]/' 28
edited 's/\[15, 30\]/[14, 30]/' 14
edited 's/\[15, 30\]/[16, 30]/' 'block 15'
edited 's/\[0, 15\]/[0, 0]/' 'stages[0]'
edited 's/"n_blocks": 30/"n_blocks": 31/' 31
edited 's/"samples": \([0-9]\)/"samples": 1\1/' samples
done_checks
