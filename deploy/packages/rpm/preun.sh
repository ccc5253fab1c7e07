if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl --quiet disable --now zlock.service
fi
