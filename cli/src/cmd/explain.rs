//! `mpathctl explain`

use mpath_api::client::Client;
use mpath_api::types::{
    Decision, ExplainedPath, Explanation, FlushTarget, NextRequest, PathReason, ThreadExplanation, WaitCause, Waiting,
};

use super::ms;
use crate::Failure;
use crate::output::{Column, Output, Text, or_dash, table};

#[derive(Debug, clap::Args)]
pub(crate) struct Command {
    /// The disk
    disk: String,
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        Ok(output.print(&client.explain(&self.disk)?, for_people)?)
    }
}

fn for_people(of: &Explanation) -> Text {
    let mut head = format!("{}: {}, policy {}\n", of.disk, of.condition, of.policy);
    head.extend(of.reasons.iter().map(|of| format!("  {}: {}\n", of.condition, of.message)));
    of.threads.iter().fold(head.into(), |text: Text, of| text.then("\n").then(thread(of)))
}

fn thread(of: &ThreadExplanation) -> Text {
    let queues: Vec<_> = of.queues.iter().map(ToString::to_string).collect();
    let queues = if queues.is_empty() { "no virtqueue".into() } else { format!("virtqueue {}", queues.join(", ")) };
    let held = of.held_ms.map(|ms| format!("all requests wait in the virtqueues for a fence, {ms} ms more\n"));
    let suspended = of.suspended.then(|| "all requests wait in the virtqueues: the disk is suspended\n".into());
    let head = [Some(format!("I/O thread {}, {queues}\n", of.thread)), held, suspended];
    Text::from(head.into_iter().flatten().collect::<String>())
        .then(next("read", &of.read))
        .then(next("write", &of.write))
        .then(flush(of.flush.as_deref()))
        .then(waiting(&of.waiting))
}

fn next(class: &str, of: &NextRequest) -> Text {
    let which = if of.exists { "waits for a path" } else { "would come now" };
    let left = or_dash(of.left_us.map(ms));
    let decision = match (of.decision, of.index) {
        (Decision::Path, Some(index)) => format!("takes path {index}"),
        (Decision::NoPath | Decision::Path, _) if of.left_us.is_none() => "waits: no path is eligible".into(),
        (Decision::NoPath | Decision::Path, _) => format!("waits: no path is eligible; it fails in {left} ms"),
        (Decision::NoRoom, _) => "waits: no path has room".into(),
        (Decision::PolicyWaits, _) => "waits: the policy prefers a path without room".into(),
    };
    let limit = of.limit_left_us.map(|left| format!("; the limits of the disk let it go in {} ms", ms(left)));
    let columns = [
        Column::Number("#"),
        Column::Text("ADDRESS"),
        Column::State("STATE"),
        Column::LateNumber("BUSY"),
        Column::Long("POLICY SAYS"),
        Column::Long("WHY NOT"),
        Column::Long("NOTES"),
    ];
    let head = format!("\n{class} of {} bytes that {which}: {decision}{}\n", of.bytes, limit.unwrap_or_default());
    Text::from(head).then(table(columns, of.paths.iter().map(path)))
}

fn path(of: &ExplainedPath) -> [String; 7] {
    let mut notes: Vec<String> =
        of.injections.iter().map(|injection| format!("injection {}", injection.injection)).collect();
    if of.suspect && of.reason != Some(PathReason::Suspect) {
        notes.push("suspect".into());
    }
    if of.reason == Some(PathReason::Down) {
        notes.extend(of.detail.clone());
    }
    [
        of.index.to_string(),
        of.address.to_string(),
        of.state.to_string(),
        of.in_flight.to_string(),
        or_dash(of.opinion),
        of.reason.map_or("-".into(), |reason| why_not(reason, of)),
        if notes.is_empty() { "-".into() } else { notes.join("; ") },
    ]
}

/// The reason in words.
fn why_not(reason: PathReason, of: &ExplainedPath) -> String {
    let left = || or_dash(of.left_us.map(ms));
    match reason {
        PathReason::Down => "not live".into(),
        PathReason::AnaState => format!("ANA state {}", or_dash(of.ana_state)),
        PathReason::Resting => format!("rests after a path error, {} ms more", left()),
        PathReason::Draining => "drained".into(),
        PathReason::ControllerDelay => format!("the controller asked for a delay, {} ms more", left()),
        PathReason::Suspect => "suspect".into(),
        PathReason::Avoided => "the last attempt was there".into(),
        PathReason::NonOptimized => "not optimized".into(),
        PathReason::WindowFull => "no room".into(),
        PathReason::RoomReserved => "room kept for an earlier request".into(),
        PathReason::NotPreferred => "not preferred".into(),
    }
}

fn flush(targets: Option<&[FlushTarget]>) -> String {
    let Some(targets) = targets else { return "\nflush: any path will do\n".into() };
    if targets.is_empty() {
        return "\nflush: no controller has unflushed writes\n".into();
    }
    let target = |of: &FlushTarget| {
        let notes = [
            (of.is_presumed, "writes of an earlier daemon"),
            (of.has_lost_writes, "fails: unflushed writes were lost"),
            (!of.has_lost_writes && !of.is_reachable, "waits: the path is not usable"),
        ];
        let notes: Vec<_> = notes.into_iter().filter(|(holds, _)| *holds).map(|(_, note)| note).collect();
        if notes.is_empty() { format!("path {}", of.path) } else { format!("path {} ({})", of.path, notes.join(", ")) }
    };
    format!("\nflush: must reach {}\n", targets.iter().map(target).collect::<Vec<_>>().join(", "))
}

fn waiting(all: &[Waiting]) -> Text {
    if all.is_empty() {
        return "\nno request is open\n".into();
    }
    let columns = [
        Column::Text("WAITS FOR"),
        Column::Number("PATH"),
        Column::Number("REQUESTS"),
        Column::Number("OLDEST(ms)"),
        Column::Number("ENDS IN(ms)"),
        Column::Number("BEHIND"),
    ];
    let row = |of: &Waiting| {
        [
            cause(of.cause).into(),
            or_dash(of.path),
            of.requests.to_string(),
            ms(of.oldest.as_micros()),
            or_dash(of.ends_in.map(|time| ms(time.as_micros()))),
            of.behind.to_string(),
        ]
    };
    Text::from("\n").then(table(columns, all.iter().map(row)))
}

fn cause(cause: WaitCause) -> &'static str {
    match cause {
        WaitCause::Limit => "the limits of the disk",
        WaitCause::NoPath => "a path",
        WaitCause::Room => "room on a path",
        WaitCause::Policy => "a better path",
        WaitCause::Turn => "its turn",
        WaitCause::Retry => "the time of a retry",
        WaitCause::Fence => "the fence of its path",
        WaitCause::Injection => "the injection of its path",
        WaitCause::Answer => "the answer of its path",
        WaitCause::Hedge => "the first of two answers",
        WaitCause::Recall => "its way back from its path",
        WaitCause::FlushTurn => "its turn on a path, as a flush",
    }
}
