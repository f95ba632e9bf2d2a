#!/bin/sh
# Help and version, for people and scripts.
. "$(dirname "$0")/zplan_lib.sh"

status_is 0 --version
equal "version" "$(sed 's/[0-9]*\.[0-9]*\.[0-9]*$/N/' out)" "zplan N"
status_is 0 --help
for command in solve check explain simulate estimate; do
    grep -q "^  $command " out || fail "--help does not name $command"
done
for command in "" solve check explain simulate estimate; do
    status_is 0 $command --help
    equal "stderr of $command --help" "$(wc -c <err | tr -d ' ')" 0
    equal "widest line of $command --help" "$(awk 'length($0) > 80' out)" ""
done
status_is 2
refused 2 check check
refused 2 argument solve extra
refused 2 model solve --cluster "1x(1xT4)" --batch 1 --seq 1
refused 2 cluster estimate --model tiny
status_is 0 estimate --cluster "1x(1xT4)" --model tiny --seq 16 --max-micro-batch 4 -o -
equal "first byte" "$(head -c 1 out)" "{"
mv out profile.json
status_is 0 solve --cluster "1x(1xT4)" --model tiny --seq 16 --batch 4 --profile profile.json
refused 2 "sequence length 32" solve --cluster "1x(1xT4)" --model tiny --seq 32 --batch 4 \
    --profile profile.json
status_is 1 solve --cluster "1x(1xT4)" --model tiny --seq 16 --batch 4 --profile profile.json \
    -o no/such/folder/plan.json
done_checks
