if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers oribi.conf
elif ! getent passwd oribi >/dev/null; then
    useradd --system --user-group --no-create-home --home-dir /var/lib/oribi \
        --shell /usr/sbin/nologin --comment "Oribi key-value server" oribi
fi
install -d -o oribi -g oribi -m 0750 /var/lib/oribi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # An upgrade restarts what runs; a first installation leaves the start to the administrator.
    if [ "$1" -gt 1 ]; then systemctl try-restart oribi.service; fi
fi
