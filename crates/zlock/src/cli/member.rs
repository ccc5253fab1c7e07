//! `zlock member` and `zlock leader`: show and change the members of the cluster and its leader.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use tokio::time::{Instant, sleep};
use zlock_client::{Error, MemberState, Members, NewMember};

use super::context::Context;
use super::failure::Failure;
use super::options::{flag, group, number, option, time};
use super::output::Output;
use super::seen::plain;

/// Pause between two requests for the state of a membership change.
const LOOK: Duration = Duration::from_millis(500);
/// Time without an answer of any node after which the command waits no longer for the end of a
/// membership change. A removed node ends, and the command may know no other node.
const SILENCE_MAX: Duration = Duration::from_secs(30);

pub(crate) fn command() -> Command {
    let id = || Arg::new("id").value_name("ID").required(true).value_parser(number::<u64>(1));
    let new = "Id of the new member, host:port of its listener for peers, and of that for HTTP: 4=n4:7101/n4:7001";
    let new = || Arg::new("new").value_name("ID=PEER/HTTP").required(true).help(new);
    let zone = || option("zone", "NAME", "Place of the member, as a note for people");
    let add = Command::new("add")
        .about("Adds a node that was started with node.joining = true; it becomes a voter once it has caught up")
        .arg(new())
        .arg(flag("observer", "The member serves reads and watches, and never votes"))
        .arg(flag("no-promote", "The member becomes a voter only by zlock member promote"))
        .arg(zone())
        .args(waiting());
    let replace = Command::new("replace")
        .about("Adds a new node, and then removes the voter that it replaces, which may run or not")
        .arg(id().help("Id of the voter to replace"))
        .arg(new())
        .arg(zone())
        .args(waiting());
    let remove = Command::new("remove")
        .about("Removes a member for good. Its id is never used again")
        .arg(id().help("Id of the member"))
        .arg(flag("force", "Removes the member even if the remaining voters in contact with the leader are no quorum"))
        .args(waiting());
    let update = Command::new("update")
        .about("Changes the addresses or the zone of a member")
        .arg(id().help("Id of the member"))
        .arg(option("peer", "HOST:PORT", "New address of the member's listener for peers"))
        .arg(option("http", "HOST:PORT", "New address of the member's listener for HTTP clients"))
        .arg(zone());
    let promote = Command::new("promote").about("Makes a voter of a learner that has caught up");
    group("member", "Shows the members, and changes them. For operators")
        .subcommand(Command::new("list").about("Shows the members as the leader knows them"))
        .subcommand(add)
        .subcommand(promote.arg(id().help("Id of the learner")))
        .subcommand(replace)
        .subcommand(remove)
        .subcommand(update)
}

pub(crate) fn leader_command() -> Command {
    let to = Arg::new("id").value_name("ID").value_parser(number::<u64>(1));
    let transfer = Command::new("transfer").about("Transfers leadership to another voter, and waits until it leads");
    group("leader", "Transfers leadership. For operators")
        .subcommand(transfer.arg(to.help("Id of the voter [default: the one of highest priority and least lag]")))
}

fn waiting() -> [Arg; 2] {
    [
        flag("no-wait", "Ends the command when the change has begun; the cluster completes the change"),
        time("wait", "Longest time to wait for the end of the change, which continues then").default_value("10m"),
    ]
}

pub(crate) async fn list(context: &Context) -> Result<u8, Failure> {
    let members = context.client.members().await?;
    show(context, &members)
}

pub(crate) async fn add(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let (observer, manual) = (matches.get_flag("observer"), matches.get_flag("no-promote"));
    let new = NewMember { observer, manual, ..new_member(matches)? };
    let id = new.id;
    let members = context.client.add_member(&new).await?;
    let done = move |members: &Members| role_of(members, id).is_some_and(|role| observer || manual || role == "voter");
    wait(context, matches, members, done).await
}

pub(crate) async fn replace(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let old = id_of(matches);
    let new = NewMember { replaces: Some(old), ..new_member(matches)? };
    let id = new.id;
    let members = context.client.add_member(&new).await?;
    let done = move |members: &Members| role_of(members, id) == Some("voter") && role_of(members, old).is_none();
    wait(context, matches, members, done).await
}

pub(crate) async fn promote(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let members = context.client.promote_member(id_of(matches)).await?;
    show(context, &members)
}

pub(crate) async fn remove(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let id = id_of(matches);
    let members = context.client.remove_member(id, matches.get_flag("force")).await?;
    wait(context, matches, members, move |members| role_of(members, id).is_none()).await
}

pub(crate) async fn update(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let text = |name| matches.get_one::<String>(name).map(String::as_str);
    if [text("peer"), text("http"), text("zone")].iter().all(Option::is_none) {
        return Err(Failure::usage("say what has changed: --peer, --http or --zone"));
    }
    let members = context.client.update_member(id_of(matches), text("peer"), text("http"), text("zone")).await?;
    show(context, &members)
}

pub(crate) async fn transfer(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let done = context.client.transfer_leader(matches.get_one::<u64>("id").copied()).await?;
    let line = format!("node {} leads instead of node {}, after {} ms", done.to, done.from, done.took_ms);
    context.out.answer(&done, || context.out.line(&line))
}

fn id_of(matches: &ArgMatches) -> u64 {
    *matches.get_one::<u64>("id").expect("it is required")
}

fn role_of(members: &Members, id: u64) -> Option<&str> {
    members.members.iter().find(|member| member.id == id).map(|member| member.role.as_str())
}

/// Parses the argument `ID=PEER/HTTP` for a new member.
fn new_member(matches: &ArgMatches) -> Result<NewMember, Failure> {
    let text = matches.get_one::<String>("new").expect("it is required");
    let parse = || {
        let (id, addrs) = text.split_once('=')?;
        let (peer_addr, http_addr) = addrs.split_once('/')?;
        let id = id.parse().ok().filter(|id| *id != 0)?;
        let zone = matches.get_one::<String>("zone").cloned();
        Some(NewMember { id, peer_addr: peer_addr.into(), http_addr: http_addr.into(), zone, ..NewMember::default() })
    };
    parse().ok_or_else(|| Failure::usage(format!("`{text}` is not ID=PEER/HTTP, such as 4=n4:7101/n4:7001")))
}

/// Prints the members after each step of a membership change, until `done` returns true.
async fn wait(
    context: &Context,
    matches: &ArgMatches,
    mut members: Members,
    done: impl Fn(&Members) -> bool,
) -> Result<u8, Failure> {
    let patience = *matches.get_one::<Duration>("wait").expect("it has a default");
    let give_up = Instant::now() + patience;
    // Time at which the first request without an answer was sent; `None` while nodes answer.
    let mut silent_since = None;
    while !matches.get_flag("no-wait") && (members.joint || !done(&members)) {
        let silence = silent_since.map(|since: Instant| since.elapsed());
        match silence {
            Some(silence) if silence >= SILENCE_MAX || Instant::now() >= give_up => return Err(unheard(context)),
            None if Instant::now() >= give_up => return Err(unfinished(patience)),
            _ => sleep(LOOK).await,
        }
        let asked = Instant::now();
        match context.client.members().await {
            Ok(now) => (members, silent_since) = (now, None),
            // During a change of the leader, no node may be able to tell the members.
            Err(_) if answers(context).await => silent_since = None,
            Err(_) => _ = silent_since.get_or_insert(asked),
        }
    }
    show(context, &members)
}

/// Tells whether at least one node answers.
async fn answers(context: &Context) -> bool {
    context.client.status().await.iter().any(|(_, answer)| matches!(answer, Ok(_) | Err(Error::Refused { .. })))
}

/// Returns the failure for a membership change that takes longer than `patience`.
fn unfinished(patience: Duration) -> Failure {
    let why = format!("not done after {} s; it goes on by itself: look with zlock member list", patience.as_secs());
    Failure::refused(why).with_code(3)
}

/// Returns the failure for a membership change after which no node answers.
fn unheard(context: &Context) -> Failure {
    let nodes = context.connection.endpoints.join(",");
    let reason = format!(
        "no node of {nodes} answers any more, and a removed node ends; `zlock member list --endpoints` asks another one"
    );
    Failure::from(Error::Unknown { reason })
}

fn show(context: &Context, members: &Members) -> Result<u8, Failure> {
    context.out.answer(members, || print(context.out, members))
}

fn print(out: Output, members: &Members) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = members.members.iter().map(|member| row(member, members.leader)).collect();
    out.table(&["NODE", "ROLE", "PEER", "HTTP", "ZONE", "LAG", "HEARD", "STATE"], &rows)?;
    out.line(&in_words(members))
}

fn row(member: &MemberState, leader: Option<u64>) -> Vec<String> {
    let number = |number: Option<u64>, unit: &str| number.map_or("-".into(), |number| format!("{number}{unit}"));
    let state = match member {
        MemberState { removing: true, .. } => "removing".to_owned(),
        MemberState { replaces: Some(old), .. } => format!("replaces {old}"),
        MemberState { id, .. } if leader == Some(*id) => "leads".to_owned(),
        _ => "-".to_owned(),
    };
    vec![
        member.id.to_string(),
        member.role.clone(),
        plain(&member.peer_addr),
        plain(&member.http_addr),
        member.zone.as_deref().map_or("-".into(), plain),
        number(member.lag_entries, ""),
        number(member.last_contact_ms, "ms"),
        state,
    ]
}

fn in_words(members: &Members) -> String {
    let change = match (members.joint, members.committed) {
        (true, _) => ", and a change of the voters is half done",
        (false, false) => ", and the last change is not committed yet",
        (false, true) => "",
    };
    match members.failure_tolerance {
        0 => format!("no voter may fail now{change}"),
        1 => format!("one voter may fail{change}"),
        several => format!("{several} voters may fail{change}"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use zlock_client::Client;

    use super::*;
    use crate::cli::connection::Connection;

    /// An empty list of members. With `joint`, a change of the voters is half done.
    fn of_nobody(failure_tolerance: u64, joint: bool) -> Members {
        let (index, committed, reported_by, leader) = (1, true, 1, Some(1));
        let (members, removed) = (Vec::new(), Vec::new());
        Members { index, committed, joint, reported_by, leader, failure_tolerance, members, removed }
    }

    /// Context of a command whose only node is down.
    fn without_nodes() -> Context {
        let endpoints = vec!["127.0.0.1:1".to_owned()];
        let client = Client::builder(endpoints.clone()).build().unwrap();
        let connection = Connection { endpoints, ca: None, certificate: None, key: None, user: None, config: None };
        Context { client, out: Output::new(false), connection, leaves_session: Cell::new(false) }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_long_for_a_node_that_was_removed() {
        let (context, matches) = (without_nodes(), command().get_matches_from(["member", "remove", "1"]));
        let began = Instant::now();
        let ended = wait(&context, matches.subcommand().unwrap().1, of_nobody(0, true), |_| false).await;
        let failure = ended.unwrap_err();
        assert!(began.elapsed() >= SILENCE_MAX && began.elapsed() < 2 * SILENCE_MAX, "{:?}", began.elapsed());
        assert!(
            format!("{failure:?}").contains("it is not known whether it was done: no node of 127.0.0.1:1 "),
            "{failure:?}"
        );
        assert_eq!(failure.tell(true), 3);
    }

    #[test]
    fn what_may_fail_is_said_in_words() {
        let words = |failure_tolerance, joint| in_words(&of_nobody(failure_tolerance, joint));
        assert_eq!(words(0, false), "no voter may fail now");
        assert_eq!(words(2, true), "2 voters may fail, and a change of the voters is half done");
    }

    #[test]
    fn a_new_member_is_written_as_in_a_file() {
        let read = |text: &str| {
            let matches = command().try_get_matches_from(["member", "add", text]).unwrap();
            new_member(matches.subcommand().unwrap().1)
        };
        let new = read("4=n4:7101/n4:7001").ok().unwrap();
        assert_eq!((new.id, &*new.peer_addr, &*new.http_addr), (4, "n4:7101", "n4:7001"));
        for wrong in ["4", "0=a:1/b:2", "x=a:1/b:2", "4=a:1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
