systemd-sysusers zlock.conf
# The package can name only root as an owner: rpm unpacks the file before the group exists.
chown root:zlock /etc/zlock/zlock.toml
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ "$1" -gt 1 ]; then
    echo "zlock: a node that runs keeps its old program until it is restarted. Restart one node at a time:"
    echo "zlock: systemctl restart zlock, and wait until 'zlock ready' ends with 0 before you restart the next node."
fi
