# SPDX-License-Identifier: Apache-2.0
# What a shell that is process 1 of a host runs: the command that follows, and before and after it a look at what is there; job.sh has expect_nothing. Of a
# worker sshd's folder is left, which is empty.
find /dev/shm /tmp /run -xdev -mindepth 1 | sort >/opt/ml/before
"$@"
code=$?
find /dev/shm /tmp /run -xdev -mindepth 1 -not -path /run/sshd | sort >/opt/ml/after
ps -e -o pid=,args= | grep -Ev " sh -c| ps -e| grep " >/opt/ml/left
exit $code
