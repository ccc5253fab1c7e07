use std::path::Path;

use super::{ConfigError, Given, KEYS, Settings, load, value};

const THREE: &str = r#"
node_id = 2
cluster_id = "orders"
members = [
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
fn a_member_with_a_name_listens_on_every_interface() {
    let settings = load_text(THREE, &[("node_id", "3")]).unwrap();
    assert_eq!(settings.http_listen, Some("0.0.0.0:7001".parse().unwrap()));
}

#[test]
fn flags_win_over_the_file() {
    let text = format!("{THREE}heartbeat = \"50ms\"\n");
    assert_eq!(load_text(&text, &[]).unwrap().replica.heartbeat_ms, 50);
    assert_eq!(load_text(&text, &[("heartbeat", "40")]).unwrap().replica.heartbeat_ms, 40);
}

#[test]
fn an_unknown_key_is_refused_with_the_file_and_the_nearest_known_one() {
    refused(&format!("{THREE}heart_beat = 5\n"), "unknown key `heart_beat`; did you mean `heartbeat`?");
    refused(&format!("{THREE}heart_beat = 5\n"), "node.toml");
    refused(&THREE.replacen("peer_addr", "peer_adr", 1), "did you mean `members.peer_addr`?");
    refused("zzz = 1", "unknown key `zzz`");
}

#[test]
fn a_value_that_does_not_fit_is_refused_with_its_origin() {
    refused(&format!("{THREE}heartbeat = \"soon\"\n"), "`soon` is not a duration");
    refused(&format!("{THREE}data_max = \"6GiB\"\n"), "`6GiB` is too large");
    refused(&format!("{THREE}watches_max = -1\n"), "`-1` is not a whole number");
    refused(&format!("{THREE}log = [1]\n"), "a value of type array does not fit here");
    let message = load_text(THREE, &[("heartbeat", "x")]).unwrap_err().to_string();
    assert!(message.contains("(from --heartbeat)"), "{message}");
}

#[test]
fn a_filter_that_would_mute_the_log_is_refused_with_what_there_is() {
    for good in ["info", "INFO", "off", "info,rest=debug", "warn, replica::story=info", "debug,openraft=error"] {
        assert_eq!(load_text(&format!("{THREE}log = \"{good}\"\n"), &[]).unwrap().log, good);
    }
    let log = |text: &str, part: &str| refused(&format!("{THREE}log = \"{text}\"\n"), part);
    log("json", "`json` is not a level; these are: off, error, warn, info, debug, trace; for the form of the lines");
    log("info,rst=debug", "`rst` is not a part of zlock that logs; these are: zlock, rest, wire, replica");
    log("info,rest", "`rest` is not a level; these are: off, error, warn, info, debug, trace; give a part its level");
    log("loud", "`loud` is not a level");
    log("info,", "`` is not a level");
    log("rest[span]=debug", "`rest[span]` is not a part");
    log("", "`` is not a level");
    assert_eq!(load_text(THREE, &[("log_format", "json")]).unwrap().log_format, super::LogFormat::Json);
    refused(&format!("{THREE}log_format = \"yaml\"\n"), "`yaml` is neither text nor json");
}

#[test]
fn contradictions_are_refused() {
    refused("", "node_id is missing");
    refused("node_id = 1", "members is missing");
    refused(&THREE.replace("node_id = 2", "node_id = 9"), "node_id 9 is not among the members");
    refused(&THREE.replace("id = 3", "id = 1"), "the id 1 is 0 or there twice");
    refused(&THREE.replace("10.0.0.2:7101", "10.0.0.1:7101"), "the address 10.0.0.1:7101 is there twice");
    refused(&format!("{THREE}election_timeout_min = \"2s\"\n"), "must be below election_timeout_max");
    refused(&format!("{THREE}heartbeat = \"63ms\"\n"), "at most an eighth of election_timeout_min");
    refused(&format!("{THREE}session_timeout_min = \"1s\"\n"), "at least twice election_timeout_max");
    refused(&format!("{THREE}session_timeout_max = \"1s\"\n"), "must not be above session_timeout_max");
    refused(
        &format!("{THREE}zookeeper_requests_max = \"1000000B\"\n"),
        "zookeeper_requests_max (1000000) must be above zookeeper_packet_max",
    );
    refused(&format!("{THREE}children_max = 10\n"), "waiters are children");
    refused(&format!("{THREE}reap_batch_max = 0\n"), "sessions would never expire");
    refused(&format!("{THREE}reap_batch_max = 5000\n"), "at most 4096");
    refused(&format!("{THREE}body_max = \"32MiB\"\ndata_max = \"9MiB\"\n"), "at most 8388608");
    refused(&format!("{THREE}ops_max = 5000\n"), "at most 4096");
    refused(&format!("{THREE}threads = 5000\n"), "at most 1024");
    refused(&format!("{THREE}idle_timeout = \"900ms\"\n"), "idle_timeout (900ms) must be between 1s and 1h");
    refused(&format!("{THREE}idle_timeout = \"61m\"\n"), "must be between 1s and 1h");
    refused(&format!("{THREE}drain_time = \"6m\"\n"), "drain_time (360000ms) must be at most 5m");
    refused(&format!("{THREE}zookeeper_answers_max = \"1MiB\"\n"), "at most half of zookeeper_answers_max");
    for listen in ["zookeeper_listen", "zookeeper_tls_listen"] {
        let packets = format!("zookeeper_packet_max = \"512KiB\"\n{listen} = \"127.0.0.1:2281\"\n");
        let tls = "tls_certificate = \"/c.pem\"\ntls_key = \"/k.pem\"\nhttp_tls_listen = \"127.0.0.1:7443\"\n";
        refused(&format!("{THREE}{packets}{tls}"), "or the longest data cannot be read");
    }
    refused(&THREE.replace("10.0.0.1:7101", "10.0.0.1"), "`10.0.0.1` of member 1 is not `HOST:PORT`");
}

#[test]
fn hosts_and_origins_are_kept_in_one_form_and_refused_in_no_form() {
    let hosts = r#"http_hosts = ["Zlock.Example.", "[2001:DB8:0::1]", "10.0.0.7"]"#;
    let origins = r#"http_origins = ["HTTPS://UI.Example:443/", "http://ui.example:81"]"#;
    let settings = load_text(&format!("{THREE}{hosts}\n{origins}\n"), &[("node_id", "3")]).unwrap();
    assert_eq!(settings.rest.http_hosts, ["zlock.example", "2001:db8::1", "10.0.0.7"]);
    assert_eq!(settings.rest.http_origins, ["https://ui.example", "http://ui.example:81"]);
    assert_eq!(settings.rest.own_host, "node3.example", "of http_addr");
    for host in ["zlock.example:7001", "http://zlock.example", "*.example", "a b", "zlock.example/", "10.0.1", ""] {
        refused(
            &format!("{THREE}http_hosts = [\"{host}\"]\n"),
            "is not a name or an address, without a scheme or a port",
        );
    }
    for origin in
        ["ui.example", "https://ui.example/app", "ftp://ui.example", "null", "https://", "https://ui.example:x"]
    {
        refused(&format!("{THREE}http_origins = [\"{origin}\"]\n"), "is not an origin like https://ui.example:8443");
    }
}

#[test]
fn bounds_that_would_refuse_what_another_bound_allows_are_refused() {
    let taken = |text: &str| assert!(load_text(&format!("{THREE}{text}"), &[]).is_ok(), "{text}");
    let entry_cost = "entry_cost_max (";
    for (text, part) in [
        ("entry_cost_max = 1151\n", entry_cost),
        ("entry_cost_max = 999\nops_max = 1000\n", "must be at least 9000, or a transaction of ops_max (1000) creates"),
        ("entry_cost_max = 89\nops_max = 10\n", entry_cost),
        ("entry_cost_max = 0\n", entry_cost),
        ("bodies_max = \"7MiB\"\n", "bodies_max (7340032) must be at least twice body_max (4194304)"),
        ("bodies_max = \"256MiB\"\nbody_max = \"129MiB\"\n", "must be at least twice body_max"),
    ] {
        refused(&format!("{THREE}{text}"), part);
    }
    taken("entry_cost_max = 1152\n");
    taken("entry_cost_max = 90\nops_max = 10\n");
    taken("bodies_max = \"8MiB\"\n");
}

#[test]
fn bounds_for_one_address_and_names_for_browsers_reach_both_doors() {
    let text = format!("{THREE}exempt_addresses = [\"10.0.0.0/8\", \"192.0.2.7\"]\nhttp_hosts = [\"zlock.example\"]\n");
    let given = [("http_origins", "https://ui.example,http://ui.example:81"), ("sessions_max", "100")];
    let settings = load_text(&text, &given).unwrap();
    assert_eq!(settings.rest.exempt.to_string(), "10.0.0.0/8,192.0.2.7/32");
    assert_eq!(settings.wire.exempt, settings.rest.exempt);
    assert_eq!(settings.rest.http_hosts, ["zlock.example"]);
    assert_eq!(settings.rest.http_origins, ["https://ui.example", "http://ui.example:81"]);
    assert_eq!(settings.replica.limits.sessions_per_address_max, 25, "a quarter");
    assert_eq!((settings.rest.session_rate_max, settings.wire.session_rate_max), (500, 500));
    refused(&format!("{THREE}exempt_addresses = \"10.0.0.0/33\"\n"), "`10.0.0.0/33` is not an IP address or a network");
    refused(&format!("{THREE}http_hosts = [\"zlock.example:7001\"]\n"), "without a scheme or a port");
    refused(&format!("{THREE}http_origins = \"ui.example\"\n"), "like https://ui.example:8443");
    refused(&format!("{THREE}heartbeat = [\"50ms\"]\n"), "does not fit here");
}

#[test]
fn a_file_that_is_not_there_or_no_toml_is_named() {
    let message = load(Some(Path::new("/nowhere/node.toml")), []).unwrap_err().to_string();
    assert!(message.starts_with("cannot read /nowhere/node.toml: "), "{message}");
    refused("node_id = = 1", "node.toml: ");
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
        assert_eq!((key.show)(&again), shown, "{}", key.name);
    }
}

#[test]
fn durations_and_sizes_take_units() {
    let table = [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("1500", 1500), ("1_000", 1000)];
    for (text, want) in table {
        assert_eq!(value::duration::parse::<u64>(text), Ok(want), "{text}");
    }
    for (text, want) in [("64MiB", 64 << 20), ("16 KiB", 16 << 10), ("1GiB", 1 << 30), ("12", 12), ("12B", 12)] {
        assert_eq!(value::size::parse::<u64>(text), Ok(want), "{text}");
    }
    for text in ["", "s", "1.5s", "-1s", "1 year", "99999999999999999999s", "18446744073709551615s"] {
        assert!(value::duration::parse::<u64>(text).is_err(), "{text}");
    }
}

const BEGIN: &str = "<!-- begin of the table of keys -->\n";
const END: &str = "<!-- end of the table of keys -->\n";

/// `UPDATE_GOLDENFILES=1 cargo test -p zlock` writes the table.
#[test]
fn the_table_of_keys_in_the_documentation_is_current() {
    let mut table = String::new();
    let defaults = Settings::default();
    let mut group = "";
    for key in KEYS {
        if key.group != group {
            group = key.group;
            table.push_str(&format!("\n**{group}**\n\n| key | takes | default | |\n|---|---|---|---|\n"));
        }
        let default = (key.show)(&defaults);
        let default = if default.is_empty() || key.name == "node_id" { String::new() } else { format!("`{default}`") };
        table.push_str(&format!("| `{}` | {} | {default} | {} |\n", key.name, key.kind.to_lowercase(), key.help));
    }
    table.push('\n');
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the page has the first mark");
    let (found, after) = rest.split_once(END).expect("the page has the second mark");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(file, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(found, table, "UPDATE_GOLDENFILES=1 cargo test -p zlock writes the table");
    }
}

#[test]
fn operators_are_subjects_that_have_commas() {
    let tls = "http_tls_listen = \"10.0.0.2:7443\"\ntls_certificate = \"/c.pem\"\ntls_key = \"/k.pem\"\n";
    let whole = format!("{THREE}{tls}tls_client_ca = \"/ca.pem\"\n");
    let listed = "operators = [\"CN=ops,O=Example\", \"CN=root\"]\n";
    let settings = load_text(&format!("{whole}{listed}"), &[]).unwrap();
    assert_eq!(settings.rest.operators, ["CN=ops,O=Example", "CN=root"]);
    let written = load_text(&whole, &[("operators", r"CN=ops,O=Example; CN=a\;b,O=c\\;2.5.4.3=d")]).unwrap();
    assert_eq!(written.rest.operators, ["CN=ops,O=Example", r"CN=a\;b,O=c\\", "2.5.4.3=d"]);
    let key = KEYS.iter().find(|key| key.name == "operators").unwrap();
    let shown = (key.show)(&written);
    assert_eq!(load_text(&whole, &[("operators", &shown)]).unwrap().rest.operators, written.rest.operators);
    refused(&format!("{THREE}{listed}"), "operators needs tls_client_ca");
    for bad in ["ops", "", "=ops", "CN=", "CN=a;", "C N=a"] {
        refused(&format!("{whole}operators = [\"{bad}\"]\n"), "is not a subject like `CN=ops,O=Example`");
    }
    refused(&format!("{THREE}drain_delay = \"6m\"\n"), "drain_delay (360000ms) must be at most 5m");
}

#[test]
fn clients_of_the_zookeeper_door_are_told_an_address_that_reaches_it() {
    let told = |given: &[(&str, &str)]| load_text(THREE, given).unwrap().wire.addr;
    assert_eq!(told(&[]), "");
    assert_eq!(told(&[("zookeeper_listen", "10.0.0.2:2181")]), "10.0.0.2:2181");
    assert_eq!(told(&[("zookeeper_listen", "0.0.0.0:2181")]), "10.0.0.2:2181");
    assert_eq!(told(&[("zookeeper_listen", "0.0.0.0:2181"), ("node_id", "3")]), "node3.example:2181");
    assert_eq!(told(&[("zookeeper_listen", "0.0.0.0:2181"), ("zookeeper_addr", "none")]), "none");
    assert_eq!(told(&[("zookeeper_listen", "0.0.0.0:2181"), ("zookeeper_addr", "zk.example:1")]), "zk.example:1");
    let message = load_text(THREE, &[("zookeeper_addr", "zk.example")]).unwrap_err().to_string();
    assert!(message.contains("zookeeper_addr (zk.example) must be host:port"), "{message}");
}

#[test]
fn tls_that_is_given_in_part_is_refused() {
    let listens = format!("{THREE}zookeeper_tls_listen = \"10.0.0.2:2281\"\n");
    let files = "tls_certificate = \"/c.pem\"\ntls_key = \"/k.pem\"\n";
    let whole = load_text(&format!("{listens}{files}"), &[]).unwrap();
    assert_eq!((&*whole.wire.addr, whole.tls_clients.as_str()), ("10.0.0.2:2281", "optional"));
    let error = accept::Acceptor::load(&whole.tls).unwrap_err();
    assert_eq!((error.code(), error.to_string().contains("/c.pem")), ("tls-file-unreadable", true));
    refused(&listens, "TLS needs tls_certificate and tls_key");
    refused(&format!("{listens}tls_key = \"/k.pem\"\n"), "TLS needs tls_certificate and tls_key");
    refused(&format!("{THREE}{files}"), "are for http_tls_listen and zookeeper_tls_listen");
    refused(&format!("{listens}{files}tls_clients = \"required\"\n"), "needs tls_client_ca");
    refused(&format!("{listens}{files}tls_clients = \"maybe\"\n"), "must be optional or required");
    refused(&format!("{listens}{files}http_tls_listen = \"10.0.0.2:7001\"\n"), "cannot have TLS and not");
    refused(&format!("{listens}{files}http_tls_listen = \"10.0.0.2:2281\"\n"), "cannot have TLS and not");
    refused(&format!("{THREE}super_digest = \"super\"\n"), "super_digest must be user:");
    let digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
    let settings = load_text(THREE, &[("super_digest", digest)]).unwrap();
    assert_eq!([&*settings.rest.super_digest, &*settings.wire.super_digest], [digest; 2]);
    let shown = super::effective(&settings);
    assert!(
        shown.contains("\n# super_digest is given, and not shown\n") && !shown.contains("D/InIHSb7yEEb"),
        "{shown}"
    );
    assert!(!super::effective(&load_text(THREE, &[]).unwrap()).contains("super_digest"));
}
