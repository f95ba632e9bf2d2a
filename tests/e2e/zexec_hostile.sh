#!/bin/sh
# Odd files, full disks, closed streams, signals and two runs in one folder: each ends with the right
# status and one line, leaves nothing half written and no rank behind. Usage: zexec_hostile.sh ZPLAN
# SOURCE_ROOT ZEXEC
zexec=$(cd "$(dirname "$3")" && pwd)/$(basename "$3")
. "$(dirname "$0")/zplan_lib.sh"

awk 'BEGIN { for (i = 0; i < 9000; i++) printf "%c", 32 + (i * i + i) % 90 }' >text.txt
status_is 0 solve --cluster "1x(1xT4)" --model tiny --seq 64 --batch 4 -q -o one.json
status_is 0 solve --cluster "1x(2xT4)" --model tiny --seq 64 --batch 4 --stages 2 --zero 1 -q \
    -o two.json

# said STATUS TEXT: what the last program did; one line of its own on stderr, or none for "".
said() {
    n_checks=$((n_checks + 1))
    [ "$status" -eq "$1" ] || fail "ended with $status, expected $1: $(head -c 300 err)"
    [ "$(grep -c '^zexec: ' err)" -eq "$([ -n "$2" ] && echo 1 || echo 0)" ] &&
        grep -q -F -- "$2" err || [ -z "$2" ] || fail "expected \"$2\": $(head -c 300 err)"
}
# ends STATUS TEXT ARGUMENT...
ends() {
    expected=$1
    text=$2
    shift 2
    timeout 60 "$zexec" "$@" >out 2>err </dev/null
    status=$?
    said "$expected" "$text"
}
# gone FOLDER: no process of a run in this folder is left
gone() {
    n_checks=$((n_checks + 1))
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        ps -eo stat=,args= | grep -F -- "--out $work/$1" | grep -v -E '^Z|grep' >left || return 0
        sleep 1
    done
    fail "$1: still running: $(head -c 300 left)"
}
# A run of two ranks in the background that has begun to train; $pid.
start() {
    "$zexec" run two.json --data text.bin --steps 1000000 -q --save "$work/$1.safetensors" \
        --out "$work/$1" >out 2>err </dev/null &
    pid=$!
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -s "$1/metrics.jsonl" ] && return
        sleep 1
    done
    fail "$1 did not begin: $(head -c 300 err)"
}
# ended FOLDER STATUS TEXT
ended() {
    wait "$pid"
    status=$?
    said "$2" "$3"
    gone "$1"
    [ "$(find . -name "$1.safetensors*" | wc -l)" -eq 0 ] || fail "$1 left a file of weights"
}

ends 0 "" convert text text.txt -o text.bin
mkfifo pipe
mkdir folder folder.safetensors full
ln -s /dev/full full/metrics.jsonl
ln -s /dev/full full.bin
long=$(printf '%0300d' 0)
ends 2 "pipe: not a regular file" run one.json --data pipe
ends 2 "pipe: not a regular file" run one.json --data text.bin --eval pipe
ends 2 "pipe: not a regular file" convert text pipe -o no.bin
ends 2 "folder: not a regular file" run one.json --data folder
ends 2 "full.bin: is no regular file" convert text text.txt -o full.bin
[ -L full.bin ] || fail "convert replaced what is no file"
ends 2 "--save folder.safetensors: is no regular file" run one.json --data text.bin -q \
    --save folder.safetensors
ends 2 "File name too long" run one.json --data text.bin -q --save "$long.safetensors"
ends 2 "File name too long" run one.json --data text.bin -q --out "$long"
ends 2 "one.json is not a folder" run one.json --data text.bin -q --out one.json
ends 1 "full/metrics.jsonl: No space left" run one.json --data text.bin -q --steps 1 --out full
ends 1 "full/metrics.jsonl: No space left" run two.json --data text.bin -q --steps 1 --out full
ends 0 "" run one.json --data text.bin -q --steps 0
cat two.json | timeout 20 "$zexec" run /dev/stdin --data text.bin >out 2>err
status=$?
said 2 "a plan of 2 ranks is read by each of them"

# Closed and full streams.
"$zexec" run one.json --data text.bin -q --steps 1 >/dev/full 2>err
status=$?
said 1 "stdout: cannot be written"
"$zexec" run one.json --data text.bin -q --steps 1 --out closed >&- 2>err
status=$?
said 1 "stdout: cannot be written"
equal "lines of metrics that are none" "$(grep -c -v '^{.*}$' closed/metrics.jsonl)" 0
"$zexec" run two.json --data text.bin -q --steps 1 --out closed <&- >out 2>err
status=$?
said 0 ""
"$zexec" --help >/dev/full 2>err
status=$?
said 1 "stdout: cannot be written"

# Signals, and a second run in the folder of one that runs.
start first
ends 2 "another run is writing metrics.jsonl there" run one.json --data text.bin -q --out first
kill -TERM "$pid"
ended first 4 ""
equal "lines of metrics that are none" "$(grep -c -v '^{.*}$' first/metrics.jsonl)" 0
start second
kill -INT "$pid"
ended second 1 "stopped by signal 2"
start third
rank=$(ps -eo pid=,args= | grep -F -- "--out $work/third" | grep -v -E 'mpirun|mpiexec|grep' |
    awk -v pid="$pid" '$1 != pid { print $1; exit }')
kill -KILL "$rank"
ended third 1 "a rank was ended by signal 9"
start fourth
kill -KILL "$pid"
wait "$pid"
gone fourth
done_checks
