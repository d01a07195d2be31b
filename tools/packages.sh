# SPDX-License-Identifier: Apache-2.0
# For scripts to source: installs Debian packages that are missing, and runs steps quietly, with what
# they do in one line and their output only where they fail.

say()
{
    printf '== %s\n' "$*"
}

# step TEXT COMMAND...: its output goes to a file, whose end is shown if it fails
step()
{
    text=$1
    shift
    printf '== %s ... ' "$text"
    began=$(date +%s)
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        printf 'done, %s s\n' "$(($(date +%s) - began))"
        rm -f "$log"
        return 0
    fi
    printf 'FAILED:\n'
    tail -n 60 "$log"
    rm -f "$log"
    return 1
}

as_root()
{
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@" || sudo "$@"
    fi
}

apt_install()
{
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# need_packages NAME...: nothing is asked of the network where all are there
need_packages()
{
    missing=
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -q '^installed$' ||
            missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    # shellcheck disable=SC2086 # a list of words
    step "installing$missing" apt_install $missing
}

# set_up FOLDER OPTION...: a build folder with these options, made anew where it does not fit
set_up()
{
    folder=$1
    shift
    if [ -f "$folder/build.ninja" ] && meson configure "$folder" "$@" >/dev/null 2>&1; then
        return 0
    fi
    rm -rf "$folder"
    meson setup "$folder" "$@"
}
