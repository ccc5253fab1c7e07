if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
