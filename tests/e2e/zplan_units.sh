#!/bin/sh
# Bits, bytes, powers of ten and two; numbers that are none.
. "$(dirname "$0")/zplan_lib.sh"

# cluster NIC MEMORY: cluster.json of two nodes
cluster() {
    cat >cluster.json <<END
{"format": "zplan-cluster", "version": 1, "name": "c",
 "nodes": [{"count": 2, "devices": [{"type": "A100-80", "memory": $2}], "nic": $1}]}
END
}
given="--cluster cluster.json --model tiny --seq 64 --batch 4 -q"

cluster '"100Gb/s"' '"24GiB"'
status_is 0 solve $given -o bits.json
cluster '"12.5GB/s"' '"24GiB"'
status_is 0 solve $given -o bytes.json
cmp -s bits.json bytes.json || fail "100Gb/s and 12.5GB/s differ"
equal "bandwidth" "$(number bits.json nic_bytes_per_s)" 12500000000
equal "24 GiB" "$(number bits.json memory_bytes)" 25769803776
cluster '"100Gb/s"' '"24GB"'
status_is 0 solve $given -o plan.json
equal "24 GB" "$(number plan.json memory_bytes)" 24000000000
cluster '"100Gb/s"' '"150323855360B"'
status_is 0 solve $given -o plan.json
equal "140 GiB in bytes" "$(number plan.json memory_bytes)" 150323855360

cluster 100 '"24GiB"'
refused 2 nic solve $given
cluster '"100"' '"24GiB"'
refused 2 nic solve $given
cluster '"100Gb/s"' 24
refused 2 memory solve $given
cluster '"100Gb/s"' '"24,5GiB"'
refused 2 memory solve $given

# A bad time in a profile is refused with the path of its field.
model 2
for value in NaN 1e999 -3 null '"12"' '0,5' Infinity; do
    profile "$(entry T4 block "$(point 1 "$value" 2)"), $(free_ends T4)"
    refused 2 profile.json solve --cluster "1x(1xT4)" --model model.json --profile profile.json \
        --seq 64 --batch 4
done
profile "{\"device_type\": \"T4\", \"kind\": \"block\", \"precision\": \"fp32\", \"seq_len\": 64,
  \"points\": [{\"samples\": 1, \"backward_ms\": 2}]}, $(free_ends T4)"
refused 2 forward_ms solve --cluster "1x(1xT4)" --model model.json --profile profile.json \
    --seq 64 --batch 4
done_checks
