use std::path::Path;

use super::{ConfigError, Given, KEYS, Key, Settings, load, value};

const THREE: &str = r#"
node.id = 2
node.cluster_id = "orders"
node.members = [
    { id = 1, peer_addr = "10.0.0.1:7101", http_addr = "10.0.0.1:7001" },
    { id = 2, peer_addr = "10.0.0.2:7101", http_addr = "10.0.0.2:7001" },
    { id = 3, peer_addr = "node3.example:7101", http_addr = "node3.example:7001" },
]
"#;

fn load_text(text: &str, given: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.toml");
    std::fs::write(&file, text).unwrap();
    let given = given.iter().map(|(key, text)| Given {
        key: (*key).to_owned(),
        text: (*text).to_owned(),
        origin: format!("--{key}"),
    });
    load(Some(&file), given)
}

#[track_caller]
fn refused(text: &str, part: &str) {
    let message = load_text(text, &[]).expect_err("the configuration is wrong").to_string();
    assert!(message.contains(part), "{message}");
}

#[test]
fn a_file_with_the_members_is_enough() {
    let settings = load_text(THREE, &[]).unwrap();
    assert_eq!(settings.replica.cluster_id, "orders");
    assert_eq!(settings.replica.members.len(), 3);
    assert_eq!(settings.http_listen, Some("10.0.0.2:7001".parse().unwrap()));
    assert_eq!(settings.replica.peer_listen, "10.0.0.2:7101".parse().unwrap());
}

#[test]
fn the_packages_file_shows_the_keys_to_know() {
    let text = include_str!("../../../../deploy/packages/zlock.toml");
    refused(text, "node.id is missing");
    // A line of TOML in a comment has `=`, or ends a list.
    let is_toml = |line: &str| line.contains(" = ") || line == "]";
    let uncomment = |line: &str| line.strip_prefix("# ").filter(|text| is_toml(text)).unwrap_or(line).to_owned();
    let shown = text.lines().map(uncomment).collect::<Vec<_>>().join("\n");
    let table: toml::Table = shown.parse().unwrap();
    for key in KEYS.iter().filter(|key| key.is_basic) {
        let found = table.get(key.table).and_then(|keys| keys.get(key.name));
        assert!(found.is_some(), "{} is missing", key.path);
    }
    load_text(&shown, &[]).unwrap();
}

#[test]
fn a_member_with_a_name_listens_on_every_interface() {
    let settings = load_text(THREE, &[("node.id", "3")]).unwrap();
    assert_eq!(settings.http_listen, Some("0.0.0.0:7001".parse().unwrap()));
}

#[test]
fn flags_win_over_the_file() {
    let text = format!("{THREE}raft.heartbeat_interval = \"50ms\"\n");
    assert_eq!(load_text(&text, &[]).unwrap().replica.heartbeat_ms, 50);
    assert_eq!(load_text(&text, &[("raft.heartbeat_interval", "40ms")]).unwrap().replica.heartbeat_ms, 40);
}

#[test]
fn an_unknown_key_is_refused_with_the_file_and_the_nearest_known_one() {
    let near = "unknown key `raft.heart_beat`; did you mean `raft.heartbeat_interval`?";
    refused(&format!("{THREE}raft.heart_beat = 5\n"), near);
    refused(&format!("{THREE}raft.heart_beat = 5\n"), "node.toml");
    refused(&THREE.replacen("peer_addr", "peer_adr", 1), "did you mean `node.members.peer_addr`?");
    refused("zookeeper.conections_max = 1", "did you mean `zookeeper.connections_max`?");
    refused("http.stall_mx = 1", "did you mean `disk.stall_max`?");
    refused("zzz = 1", "unknown key `zzz`");
    refused("[zookeper]\nlisten = \"127.0.0.1:1\"\n", "unknown table `[zookeper]`; did you mean `[zookeeper]`?");
}

#[test]
fn a_misplaced_key_is_refused_with_its_table() {
    refused("[raft]\nstall_max = \"2s\"\n", "unknown key `raft.stall_max`; there is `stall_max` in the table `[disk]`");
    refused("[limits]\nconnections_max = 1\n", "`connections_max` in the table `[http]`, and `connections_max` in the");
    refused("http_listen = \"127.0.0.1:1\"", "unknown key `http_listen`; there is `listen` in the table `[http]`");
    refused("[node]\nnode_id = 1", "unknown key `node.node_id`; there is `id` in the table `[node]`");
    refused("data_dir = \"data\"", "unknown key `data_dir`; there is `data_dir` in the table `[node]`");
    refused("heartbeat = \"60ms\"", "unknown key `heartbeat`; did you mean `raft.heartbeat_interval`?");
    refused("data_max = \"1MiB\"", "unknown key `data_max`; did you mean `limits.data_bytes_max`?");
    refused("log = \"info\"", "log (from ");
    refused("log = \"info\"", "this is a table; its keys are level, format, file");
}

#[test]
fn tables_and_keys_with_dots_say_the_same() {
    let text =
        "[node]\nid = 1\nmembers = [\"1=10.0.0.1:7101/10.0.0.1:7001\"]\n\n[raft]\nheartbeat_interval = \"50ms\"\n";
    let settings = load_text(text, &[]).unwrap();
    assert_eq!((settings.replica.node_id, settings.replica.heartbeat_ms), (1, 50));
    let dotted = "node.id = 1\nnode.members = \"1=10.0.0.1:7101/10.0.0.1:7001\"\nraft.heartbeat_interval = \"50ms\"\n";
    assert_eq!(super::effective(&settings), super::effective(&load_text(dotted, &[]).unwrap()));
    let listed = "[node]\nid = 1\n\n[[node.members]]\nid = 1\npeer_addr = \"10.0.0.1:7101\"\nhttp_addr = \"10.0.0.1:7001\"\n\n[raft]\nheartbeat_interval = \"50ms\"\n";
    assert_eq!(super::effective(&settings), super::effective(&load_text(listed, &[]).unwrap()));
    let shown = super::effective(&settings);
    assert!(
        shown.starts_with("[node]\nid = \"1\"\n") && shown.contains("\n\n[raft]\nheartbeat_interval = \"50ms\"\n"),
        "{shown}"
    );
    assert_eq!(shown, super::effective(&load_text(&shown, &[]).unwrap()), "what is printed can be read");
}

#[test]
fn a_value_that_does_not_fit_is_refused_with_its_origin() {
    refused(&format!("{THREE}raft.heartbeat_interval = \"soon\"\n"), "`soon` is not a duration");
    refused(&format!("{THREE}limits.data_bytes_max = \"6GiB\"\n"), "`6GiB` is too large");
    refused(&format!("{THREE}node.watches_max = -1\n"), "`-1` is not a whole number");
    refused(&format!("{THREE}log.level = [1]\n"), "a value of type array does not fit here");
    let message = load_text(THREE, &[("raft.heartbeat_interval", "x")]).unwrap_err().to_string();
    assert!(message.contains("(from --raft.heartbeat_interval)"), "{message}");
}

#[test]
fn a_filter_that_would_mute_the_log_is_refused_with_what_there_is() {
    for good in ["info", "INFO", "off", "info,rest=debug", "warn, replica::story=info", "debug,openraft=error"] {
        assert_eq!(load_text(&format!("{THREE}log.level = \"{good}\"\n"), &[]).unwrap().log, good);
    }
    let log = |text: &str, part: &str| refused(&format!("{THREE}log.level = \"{text}\"\n"), part);
    log("json", "`json` is not a level; these are: off, error, warn, info, debug, trace; for the form of the lines");
    log("info,rst=debug", "`rst` is not a part of zlock that logs; these are: zlock, rest, wire, replica");
    log("info,rest", "`rest` is not a level; these are: off, error, warn, info, debug, trace; give a part its level");
    log("loud", "`loud` is not a level");
    log("info,", "`` is not a level");
    log("rest[span]=debug", "`rest[span]` is not a part");
    log("", "`` is not a level");
    assert_eq!(load_text(THREE, &[("log.format", "json")]).unwrap().log_format, super::LogFormat::Json);
    refused(&format!("{THREE}log.format = \"yaml\"\n"), "`yaml` is neither text nor json");
}

#[test]
fn contradictions_are_refused() {
    refused("", "node.id is missing");
    refused("node.id = 0", "node.id is missing or 0: give this node's id, 1 or more");
    refused("node.id = 1", "node.members is missing");
    refused(&THREE.replace("node.id = 2", "node.id = 9"), "node.id 9 is not among the members");
    refused(&THREE.replace("id = 3", "id = 1"), "the id 1 is 0 or there twice");
    refused(&THREE.replace("10.0.0.2:7101", "10.0.0.1:7101"), "the address 10.0.0.1:7101 is there twice");
    refused(&format!("{THREE}raft.election_timeout_min = \"2s\"\n"), "must be below raft.election_timeout_max");
    refused(&format!("{THREE}raft.heartbeat_interval = \"63ms\"\n"), "at most an eighth of raft.election_timeout_min");
    refused(&format!("{THREE}limits.session_timeout_min = \"1s\"\n"), "at least twice raft.election_timeout_max");
    refused(&format!("{THREE}limits.session_timeout_max = \"1s\"\n"), "must not be above limits.session_timeout_max");
    refused(
        &format!("{THREE}zookeeper.requests_bytes_max = \"1000000B\"\n"),
        "zookeeper.requests_bytes_max (1000000) must be above zookeeper.packet_bytes_max",
    );
    refused(&format!("{THREE}limits.children_max = 10\n"), "waiters are children");
    refused(&format!("{THREE}raft.reap_batch_max = 0\n"), "sessions would never expire");
    refused(&format!("{THREE}raft.reap_batch_max = 5000\n"), "at most 4096");
    refused(&format!("{THREE}http.body_bytes_max = \"32MiB\"\nlimits.data_bytes_max = \"9MiB\"\n"), "at most 8388608");
    refused(&format!("{THREE}limits.ops_max = 5000\n"), "at most 4096");
    refused(&format!("{THREE}node.threads = 5000\n"), "at most 1024");
    refused(&format!("{THREE}http.idle_timeout = \"900ms\"\n"), "http.idle_timeout (900ms) must be between 1s and 1h");
    refused(&format!("{THREE}http.idle_timeout = \"61m\"\n"), "must be between 1s and 1h");
    refused(&format!("{THREE}node.drain_time = \"6m\"\n"), "node.drain_time (360000ms) must be at most 5m");
    refused(&format!("{THREE}zookeeper.answers_bytes_max = \"1MiB\"\n"), "at most half of zookeeper.answers_bytes_max");
    for listen in ["zookeeper.listen", "zookeeper.tls_listen"] {
        let packets = format!("zookeeper.packet_bytes_max = \"512KiB\"\n{listen} = \"127.0.0.1:2281\"\n");
        let tls = "tls.certificate = \"/c.pem\"\ntls.key = \"/k.pem\"\nhttp.tls_listen = \"127.0.0.1:7443\"\n";
        refused(&format!("{THREE}{packets}{tls}"), "or the longest data cannot be read");
    }
    refused(&THREE.replace("10.0.0.1:7101", "10.0.0.1"), "`10.0.0.1` of member 1 is not `HOST:PORT`");
}

#[test]
fn the_id_of_a_pod_is_its_ordinal_plus_one() {
    let table = [("zlock-0", 1), ("zlock-2", 3), ("my-zlock-10", 11), ("zlock-1.zlock-peers.shop.svc", 2), ("a-07", 8)];
    for (hostname, id) in table {
        assert_eq!(value::node_id::of_hostname(hostname), Ok(id), "{hostname}");
    }
    for hostname in ["", "zlock", "zlock0", "zlock-", "zlock-x", "zlock-+1", "zlock-99999999999", "zlock.a-1"] {
        let refused = value::node_id::of_hostname(hostname).unwrap_err();
        assert!(
            refused.contains(&format!("the hostname `{hostname}` does not end with `-` and a number")),
            "{refused}"
        );
    }
    refused(
        &THREE.replace("node.id = 2", "node.id = \"host\""),
        "`host` is not a whole number, 0 or more, nor `hostname`",
    );
}

#[test]
fn the_ids_of_a_pattern_are_its_numbers_plus_one() {
    let read = |text: &str| value::members::parse(text).map(|members| value::members::show(&members));
    let table = [
        ("n-{0..1}.p:71/n-{0..1}.p:70", "1=n-0.p:71/n-0.p:70,2=n-1.p:71/n-1.p:70"),
        ("{3..4}:71/h{3..4}:70", "4=3:71/h3:70,5=4:71/h4:70"),
        ("n-{9..9}:71/n-{9..9}:70, 1=x:71/x:70", "10=n-9:71/n-9:70,1=x:71/x:70"),
    ];
    for (text, members) in table {
        assert_eq!(read(text).as_deref(), Ok(members), "{text}");
    }
    assert_eq!(value::members::parse("n-{0..31}:71/n-{0..31}:70").unwrap().len(), 32);
    let no_range = "with one range of numbers, such as `n-{0..2}:7101`";
    let table = [
        ("n:71/n:70", no_range),
        ("n-{0..2}:71/n:70", "`n:70` is not `HOST:PORT`"),
        ("n-{0..2}:71", "is neither `ID=PEER_HOST:PORT/HTTP_HOST:PORT` nor a pattern such as `n-{0..2}:PORT/"),
        ("n-{0..2:71/n-{0..2}:70", no_range),
        ("n-0..2}:71/n-{0..2}:70", no_range),
        ("n-{0-2}:71/n-{0-2}:70", no_range),
        ("n-{..2}:71/n-{..2}:70", no_range),
        ("n-{0..}:71/n-{0..}:70", no_range),
        ("n-{a..b}:71/n-{a..b}:70", no_range),
        ("n-{-1..2}:71/n-{-1..2}:70", no_range),
        ("n-{0..9999999999}:71/n-{0..9999999999}:70", no_range),
        ("n-{0..2}-{0..2}:71/n-{0..2}-{0..2}:70", no_range),
        ("n-{0..2}/n-{0..2}", no_range),
        ("n-{0..2}:0/n-{0..2}:70", no_range),
        ("n-{0..2}:71/n-{0..3}:70", "have different ranges"),
        ("n-{2..1}:71/n-{2..1}:70", "the range `{2..1}` is empty"),
        ("n-{0..32}:71/n-{0..32}:70", "the range `{0..32}` is too long: a cluster has at most 32 members"),
        ("n-{0..31}:71/n-{0..31}:70,40=x:71/x:70", "a cluster has at most 32 members"),
        ("1=n-{0..2}:71/n-{0..2}:70", "has an id and a range"),
    ];
    for (text, part) in table {
        let refused = read(text).unwrap_err();
        assert!(refused.contains(part), "{text}: {refused}");
    }
    let pattern = "node.id = 3\nnode.members = \"n-{0..2}:7101/n-{0..2}:7001\"\n";
    assert_eq!(load_text(pattern, &[]).unwrap().rest.own_host, "n-2");
    refused(&pattern.replace("id = 3", "id = 4"), "node.id 4 is not among the members 1, 2, 3");
}

#[test]
fn hosts_and_origins_are_kept_in_one_form_and_refused_in_no_form() {
    let hosts = r#"http.hosts = ["Zlock.Example.", "[2001:DB8:0::1]", "10.0.0.7"]"#;
    let origins = r#"http.origins = ["HTTPS://UI.Example:443/", "http://ui.example:81"]"#;
    let settings = load_text(&format!("{THREE}{hosts}\n{origins}\n"), &[("node.id", "3")]).unwrap();
    assert_eq!(settings.rest.http_hosts, ["zlock.example", "2001:db8::1", "10.0.0.7"]);
    assert_eq!(settings.rest.http_origins, ["https://ui.example", "http://ui.example:81"]);
    assert_eq!(settings.rest.own_host, "node3.example", "of http_addr");
    for host in ["zlock.example:7001", "http://zlock.example", "*.example", "a b", "zlock.example/", "10.0.1", ""] {
        refused(
            &format!("{THREE}http.hosts = [\"{host}\"]\n"),
            "is not a name or an address, without a scheme or a port",
        );
    }
    for origin in
        ["ui.example", "https://ui.example/app", "ftp://ui.example", "null", "https://", "https://ui.example:x"]
    {
        refused(&format!("{THREE}http.origins = [\"{origin}\"]\n"), "is not an origin like https://ui.example:8443");
    }
}

#[test]
fn bounds_that_would_refuse_what_another_bound_allows_are_refused() {
    let taken = |text: &str| assert!(load_text(&format!("{THREE}{text}"), &[]).is_ok(), "{text}");
    let entry_cost = "limits.entry_cost_max (";
    for (text, part) in [
        ("limits.entry_cost_max = 1151\n", entry_cost),
        (
            "limits.entry_cost_max = 999\nlimits.ops_max = 1000\n",
            "must be at least 9000, or a transaction of limits.ops_max (1000) creates",
        ),
        ("limits.entry_cost_max = 89\nlimits.ops_max = 10\n", entry_cost),
        ("limits.entry_cost_max = 0\n", entry_cost),
        (
            "http.bodies_bytes_max = \"7MiB\"\n",
            "http.bodies_bytes_max (7340032) must be at least twice http.body_bytes_max (4194304)",
        ),
        (
            "http.bodies_bytes_max = \"256MiB\"\nhttp.body_bytes_max = \"129MiB\"\n",
            "must be at least twice http.body_bytes_max",
        ),
    ] {
        refused(&format!("{THREE}{text}"), part);
    }
    taken("limits.entry_cost_max = 1152\n");
    taken("limits.entry_cost_max = 90\nlimits.ops_max = 10\n");
    taken("http.bodies_bytes_max = \"8MiB\"\n");
}

#[test]
fn bounds_for_one_address_and_names_for_browsers_reach_both_doors() {
    let text =
        format!("{THREE}node.exempt_addresses = [\"10.0.0.0/8\", \"192.0.2.7\"]\nhttp.hosts = [\"zlock.example\"]\n");
    let given = [("http.origins", "https://ui.example,http://ui.example:81"), ("limits.sessions_max", "100")];
    let settings = load_text(&text, &given).unwrap();
    assert_eq!(settings.rest.exempt.to_string(), "10.0.0.0/8,192.0.2.7/32");
    assert_eq!(settings.wire.exempt, settings.rest.exempt);
    assert_eq!(settings.rest.http_hosts, ["zlock.example"]);
    assert_eq!(settings.rest.http_origins, ["https://ui.example", "http://ui.example:81"]);
    assert_eq!(settings.replica.limits.sessions_per_address_max, 25, "a quarter");
    assert_eq!((settings.rest.session_rate_max, settings.wire.session_rate_max), (500, 500));
    refused(
        &format!("{THREE}node.exempt_addresses = \"10.0.0.0/33\"\n"),
        "`10.0.0.0/33` is not an IP address or a network",
    );
    refused(&format!("{THREE}http.hosts = [\"zlock.example:7001\"]\n"), "without a scheme or a port");
    refused(&format!("{THREE}http.origins = \"ui.example\"\n"), "like https://ui.example:8443");
    refused(&format!("{THREE}raft.heartbeat_interval = [\"50ms\"]\n"), "does not fit here");
}

#[test]
fn a_file_that_is_not_there_or_no_toml_is_named() {
    let message = load(Some(Path::new("/nowhere/node.toml")), []).unwrap_err().to_string();
    assert!(message.starts_with("cannot read /nowhere/node.toml: "), "{message}");
    refused("node.id = = 1", "node.toml: ");
}

#[test]
fn every_default_reads_back_as_itself() {
    let defaults = Settings::default();
    for key in KEYS {
        let shown = (key.show)(&defaults);
        if shown.is_empty() {
            continue;
        }
        let mut again = Settings::default();
        (key.set)(&mut again, &shown).unwrap();
        assert_eq!((key.show)(&again), shown, "{}", key.path);
    }
}

#[test]
fn durations_take_units_and_sizes_may() {
    let table = [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("1_000ms", 1000), ("0", 0)];
    for (text, want) in table {
        assert_eq!(value::duration::parse::<u64>(text), Ok(want), "{text}");
    }
    for (text, want) in [("64MiB", 64 << 20), ("16 KiB", 16 << 10), ("1GiB", 1 << 30), ("12", 12), ("12B", 12)] {
        assert_eq!(value::size::parse::<u64>(text), Ok(want), "{text}");
    }
    for text in ["", "s", "1500", "1_000", "1.5s", "-1s", "1 year", "99999999999999999999s", "18446744073709551615s"] {
        let refused = value::duration::parse::<u64>(text).unwrap_err();
        assert!(refused.contains("is not a duration with its unit, such as `250ms`") || text.len() > 18, "{refused}");
    }
}

/// Compares `made` with the part of `file` between two marker texts. With `UPDATE_GOLDENFILES=1`,
/// writes `made` into the file.
#[track_caller]
fn golden(file: &str, made: &str, [before, after]: [&str; 2]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let begin = text.find(before).expect("the file has the first mark") + before.len();
    let end = begin + text[begin..].rfind(after).expect("the file has the second mark");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(path, [&text[..begin], made, &text[end..]].concat()).unwrap();
    } else {
        assert_eq!(&text[begin..end], made, "UPDATE_GOLDENFILES=1 cargo test -p zlock writes it");
    }
}

#[test]
fn the_table_of_keys_in_the_documentation_is_current() {
    let mut table = String::new();
    let defaults = Settings::default();
    let (basic, others): (Vec<&Key>, Vec<&Key>) = KEYS.iter().partition(|key| key.is_basic);
    let mut heading = "";
    for key in basic.into_iter().chain(others) {
        if key.heading() != heading {
            heading = key.heading();
            let head = "| key | kind of value | default | meaning |\n|---|---|---|---|\n";
            table.push_str(&format!("\n**{heading}**\n\n{head}"));
        }
        let default = key.default(&defaults);
        let default = if default.is_empty() { default } else { format!("`{default}`") };
        let kind = key.kind.to_lowercase().replace('|', "\\|");
        table.push_str(&format!("| `{}` | {kind} | {default} | {} |\n", key.path, key.help));
    }
    table.push('\n');
    let marks = ["<!-- begin of the table of keys -->\n", "<!-- end of the table of keys -->\n"];
    golden("../../docs/operating.md", &table, marks);
}

#[test]
fn the_examples_in_the_documentation_are_taken() {
    let page = include_str!("../../../../docs/operating.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    assert!(examples.len() >= 2, "one with the members, and others without");
    let settings = load_text(&examples.join("\n"), &[]).unwrap();
    assert_eq!((settings.replica.node_id, settings.tls_clients.as_str()), (1, "required"));
    for file in ["node1", "node2", "node3"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../cluster/{file}.toml"));
        assert!(load(Some(&file), []).is_ok(), "{}", file.display());
    }
}

#[test]
fn a_change_of_a_key_is_a_change_of_the_golden_file() {
    let defaults = Settings::default();
    let line = |key: &Key| {
        let to_know = if key.is_basic { "to know" } else { "" };
        let (flag, variable, default) = (key.flag(), key.variable(), key.default(&defaults));
        format!("{}\t{}\t--{flag}\t{variable}\t{}\t{default}\t{to_know}\n", key.table, key.name, key.kind)
    };
    let head = "table\tkey\tflag\tvariable\tkind\tdefault\tto know\n".to_owned();
    golden("src/config/keys.tsv", &KEYS.iter().map(line).fold(head, |all, line| all + &line), ["", ""]);
}

#[test]
fn operators_are_subjects_that_have_commas() {
    let tls = "http.tls_listen = \"10.0.0.2:7443\"\ntls.certificate = \"/c.pem\"\ntls.key = \"/k.pem\"\n";
    let whole = format!("{THREE}{tls}tls.client_ca = \"/ca.pem\"\n");
    let listed = "admin.operators = [\"CN=ops,O=Example\", \"CN=root\"]\n";
    let settings = load_text(&format!("{whole}{listed}"), &[]).unwrap();
    assert_eq!(settings.rest.operators, ["CN=ops,O=Example", "CN=root"]);
    let written = load_text(&whole, &[("admin.operators", r"CN=ops,O=Example; CN=a\;b,O=c\\;2.5.4.3=d")]).unwrap();
    assert_eq!(written.rest.operators, ["CN=ops,O=Example", r"CN=a\;b,O=c\\", "2.5.4.3=d"]);
    let key = KEYS.iter().find(|key| key.path == "admin.operators").unwrap();
    let shown = (key.show)(&written);
    assert_eq!(load_text(&whole, &[("admin.operators", &shown)]).unwrap().rest.operators, written.rest.operators);
    refused(&format!("{THREE}{listed}"), "admin.operators needs tls.client_ca");
    for bad in ["ops", "", "=ops", "CN=", "CN=a;", "C N=a"] {
        refused(&format!("{whole}admin.operators = [\"{bad}\"]\n"), "is not a subject like `CN=ops,O=Example`");
    }
    refused(&format!("{THREE}node.drain_delay = \"6m\"\n"), "node.drain_delay (360000ms) must be at most 5m");
}

#[test]
fn clients_of_the_zookeeper_door_are_told_an_address_that_reaches_it() {
    let told = |given: &[(&str, &str)]| load_text(THREE, given).unwrap().wire.addr;
    assert_eq!(told(&[]), "");
    assert_eq!(told(&[("zookeeper.listen", "10.0.0.2:2181")]), "10.0.0.2:2181");
    assert_eq!(told(&[("zookeeper.listen", "0.0.0.0:2181")]), "10.0.0.2:2181");
    assert_eq!(told(&[("zookeeper.listen", "0.0.0.0:2181"), ("node.id", "3")]), "node3.example:2181");
    assert_eq!(told(&[("zookeeper.listen", "0.0.0.0:2181"), ("zookeeper.advertised_addr", "none")]), "none");
    assert_eq!(
        told(&[("zookeeper.listen", "0.0.0.0:2181"), ("zookeeper.advertised_addr", "zk.example:1")]),
        "zk.example:1"
    );
    let message = load_text(THREE, &[("zookeeper.advertised_addr", "zk.example")]).unwrap_err().to_string();
    assert!(message.contains("zookeeper.advertised_addr (zk.example) must be host:port"), "{message}");
}

#[test]
fn tls_that_is_given_in_part_is_refused() {
    let listens = format!("{THREE}zookeeper.tls_listen = \"10.0.0.2:2281\"\n");
    let files = "tls.certificate = \"/c.pem\"\ntls.key = \"/k.pem\"\n";
    let whole = load_text(&format!("{listens}{files}"), &[]).unwrap();
    assert_eq!((&*whole.wire.addr, whole.tls_clients.as_str()), ("10.0.0.2:2281", "optional"));
    let message = accept::Acceptor::load(&whole.tls).unwrap_err().to_string();
    assert!(message.starts_with("tls-file-unreadable: ") && message.contains("/c.pem"), "{message}");
    refused(&listens, "TLS needs tls.certificate and tls.key");
    refused(&format!("{listens}tls.key = \"/k.pem\"\n"), "TLS needs tls.certificate and tls.key");
    refused(&format!("{THREE}{files}"), "are for http.tls_listen and zookeeper.tls_listen");
    refused(&format!("{listens}{files}tls.client_certificates = \"required\"\n"), "needs tls.client_ca");
    refused(&format!("{listens}{files}tls.client_certificates = \"maybe\"\n"), "must be optional or required");
    refused(&format!("{listens}{files}http.tls_listen = \"10.0.0.2:7001\"\n"), "cannot have TLS and not");
    refused(&format!("{listens}{files}http.tls_listen = \"10.0.0.2:2281\"\n"), "cannot have TLS and not");
    let sha_1 = "D/InIHSb7yEEbrWz8b9l71RjZJU=";
    for digest in
        ["super", ":", "super:", "super:test", "super:c2hvcnQ=", &format!(":{sha_1}"), &format!("a:b:{sha_1}")]
    {
        refused(&format!("{THREE}admin.super_digest = \"{digest}\"\n"), "admin.super_digest must be user:");
    }
    let digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
    let settings = load_text(THREE, &[("admin.super_digest", digest)]).unwrap();
    assert_eq!([&*settings.rest.super_digest, &*settings.wire.super_digest], [digest; 2]);
    let shown = super::effective(&settings);
    assert!(
        shown.contains("\n# super_digest is given, and not shown\n") && !shown.contains("D/InIHSb7yEEb"),
        "{shown}"
    );
    assert!(!super::effective(&load_text(THREE, &[]).unwrap()).contains("super_digest"));
}

#[test]
fn a_misspelt_variable_is_known_from_those_of_others() {
    let names = [
        "ZLOCK_HTTP_LISTN",
        "ZLOCK_HTTP_LISTEN",
        "ZLOCK_ENDPOINTS",
        "ZLOCK_ADMIN_SOCKET",
        "ZLOCK_HTTP_SERVICE_HOST",
        "PATH",
    ];
    let unknown = super::unknown_variables(names.into_iter().map(str::to_owned));
    assert_eq!(unknown, ["ZLOCK_HTTP_LISTN"]);
}

#[test]
fn a_syntax_error_shows_no_secret() {
    let error = load_text("[admin]\nsuper_digest = \"super:c2VjcmV0\n", &[]).unwrap_err().to_string();
    assert!(error.contains("line 2: ") && !error.contains("c2VjcmV0"), "{error}");
}
