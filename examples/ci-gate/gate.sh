#!/bin/sh
# A step of CI that fails without signed evidence.
#
#   gate.sh BUNDLE PUBLIC_KEY LIST
#
# An argument that is not given is taken from PLIMSOLL_BUNDLE, PLIMSOLL_PUB or
# PLIMSOLL_EXPECT. PLIMSOLL_ATTEST is the program, if not plimsoll-attest of PATH.
#
# Exit status: 0, the bundle is whole, under that key and of exactly those calls;
# 1, it is refused; 2, there is no verdict. It does not rely on set -e.

set -u

fail() {
	printf 'gate: FAILED: %s\n' "$1" >&2
	exit "${2:-2}"
}

# usable WHAT NAME: sets file to the name of a file that can be read.
usable() {
	case $2 in
	'') fail "no $1 given" ;;
	/*) file=$2 ;;
	*) file=./$2 ;; # never an option, nor "-", standard input
	esac
	[ -e "$file" ] || fail "$1: $2: no such file"
	[ -f "$file" ] || fail "$1: $2: not a regular file"
	[ -r "$file" ] || fail "$1: $2: not readable"
	[ -s "$file" ] || fail "$1: $2: empty"
}

[ "$#" -le 3 ] || fail "$# arguments, want BUNDLE PUBLIC_KEY LIST"
usable bundle "${1-${PLIMSOLL_BUNDLE-}}"
bundle=$file
usable 'public key' "${2-${PLIMSOLL_PUB-}}"
key=$file
usable 'list of calls' "${3-${PLIMSOLL_EXPECT-}}"
list=$file
grep -q '[^[:space:]]' <"$list" || fail "list of calls: $list: no call in it"

attest=${PLIMSOLL_ATTEST:-plimsoll-attest}
case $attest in
-*) attest=./$attest ;;
esac
command -v "$attest" >/dev/null 2>&1 || fail "plimsoll-attest: $attest: not found, or not executable"

report=$("$attest" verify --format=json --pub="$key" --expect="$list" -- "$bundle")
status=$?
printf '%s\n' "$report"
case $status in
0) ;;
1) fail "$bundle: refused" 1 ;;
*) fail "$bundle: no verdict: verify has exit status $status" ;;
esac

# Another program of that name can have status 0 as well.
for told in '"verdict":"verified"' '{"name":"expect","checked":true'; do
	case $report in
	*"$told"*) ;;
	*) fail "$bundle: no verdict: $attest did not say $told" ;;
	esac
done
