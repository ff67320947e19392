# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Shared by tests/run and .ci/run: packages, timed steps, and the count of tests. To be sourced by
# bash with `set -u`; $top is the top of the source tree.

export LC_ALL=C.UTF-8
# Checkouts in different directories share what ccache keeps.
export CCACHE_BASEDIR=$top CCACHE_NOHASHDIR=1

say() { printf '\n== %s\n' "$*"; }

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# packages_of SET...: the packages of these sets of tests/packages.txt. Unknown set: returns 1.
packages_of() {
  local set list
  for set in "$@"; do
    list=$(awk -v wanted="[$set]" '
      /^#/ || NF == 0 { next }
      /^\[/ { inside = ($1 == wanted); found = found || inside; next }
      inside { print $1 }
      END { exit !found }' "$top/tests/packages.txt") || {
      echo "no set [$set] in tests/packages.txt; there are:" \
        "$(sed -n 's/^\[\(.*\)\]$/\1/p' "$top/tests/packages.txt" | paste -sd ' ')" >&2
      return 1
    }
    echo "$list"
  done | sort -u
  return "${PIPESTATUS[0]}"
}

missing_packages() {
  local package
  for package in "$@"; do
    # "gcc" may be there as a virtual package only; what counts is that it is configured.
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null) == installed ]] ||
      echo "$package"
  done
}

# The services of packages that we install for their programs. Debian starts a service as soon as it
# is installed and at each boot from then on, which nobody asked for here.
kServices=(prometheus-pushgateway nginx containerd)

# install_sets SET...: installs what is missing of these sets, and starts no service by it.
install_sets() {
  local packages missing service
  packages=$(packages_of "$@") || return 1
  # shellcheck disable=SC2086
  missing=$(missing_packages $packages | paste -sd ' ')
  if [[ -z $missing ]]; then
    echo "packages: all of [$*] are installed"
    return 0
  fi
  command -v apt-get > /dev/null ||
    fail "this needs Debian 12's apt-get; on another system install the like of: $missing"
  [[ $(id -u) == 0 ]] ||
    fail "packages are missing and installing needs root; run: sudo $0 --setup $*   ($missing)"
  echo "packages: installing $missing"
  local apt=(apt-get -qq -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update || fail "apt-get update failed: see its message above"
  (
    # Debian's own switch (invoke-rc.d(8)): exit status 101 of this script means "do not start". One
    # that is already there is put back afterwards, whatever happens.
    policy=/usr/sbin/policy-rc.d
    saved=$policy.headgate-saved
    restore() {
      rm -f "$policy"
      if [[ -e $saved || -L $saved ]]; then mv "$saved" "$policy"; fi
    }
    if [[ ! -e $saved && ! -L $saved ]] && [[ -e $policy || -L $policy ]]; then
      mv "$policy" "$saved"
    fi
    trap restore EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\n# Of Headgate tests/run, for the time of one apt-get install.\nexit 101\n' \
      > "$policy"
    chmod 755 "$policy"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive "${apt[@]}" install --no-install-recommends $missing < /dev/null
  ) || fail "apt-get install failed: see its message above"
  for service in "${kServices[@]}"; do
    # Only where it came with this installation: a service that was there before is the user's. The
    # link is what systemctl disable removes; a minimal system has no systemctl to do it.
    if [[ " $missing" == *" $service"* ]]; then
      update-rc.d "$service" disable > /dev/null 2>&1
      rm -f "/etc/systemd/system/multi-user.target.wants/$service.service"
    fi
  done
}

# timed NAME COMMAND...: runs a step and says how long it took; returns its status.
timed() {
  local name=$1 start=$SECONDS status=0
  shift
  say "$name"
  "$@" || status=$?
  # shellcheck disable=SC2034 # .ci/run reads it, too
  took_s=$((SECONDS - start))
  printf '== %s: %s, %d s\n' "$name" "$([[ $status == 0 ]] && echo ok || echo "FAILED ($status)")" "$took_s"
  return "$status"
}

# count_tests JUNIT_FILE...: sets passed, failed and skipped to the sums over these files of ctest.
# A file that is not there, or holds no test, counts as one failure: its tests did not even run. So
# does a test whose program is missing, which ctest files under "skipped".
count_tests() {
  local file counts p f s
  passed=0 failed=0 skipped=0
  for file in "$@"; do
    counts=$(awk '
      # Output of the tests is escaped, so these words stand only where ctest put them.
      /<testcase / && /status="run"/ { passed++ }
      /<testcase / && /status="fail"/ { failed++ }
      /<testcase / && /status="disabled"/ { skipped++ }
      /<skipped message="SKIP_/ { skipped++ }
      /<skipped message=/ && !/="SKIP_/ && !/="Disabled"/ { failed++ }
      END { if (passed + failed + skipped == 0) failed = 1
            print passed + 0, failed + 0, skipped + 0 }' "$file" 2> /dev/null) || counts="0 1 0"
    read -r p f s <<< "$counts"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  done
}

# The last line of a run: plain, for people and programs alike.
print_count() {
  if [[ $skipped == 0 ]]; then
    echo "$passed passed, $failed failed"
  else
    echo "$passed passed, $failed failed, $skipped skipped"
  fi
}
