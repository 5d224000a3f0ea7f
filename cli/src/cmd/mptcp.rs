//! `mpathctl mptcp`

use clap::Subcommand;
use mpath_api::PathAddress;
use mpath_api::address::{AddressError, Host};

use crate::Failure;
use crate::mptcp::{Done, Finding, Level, What, follow, gather, judge};
use crate::output::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Find what keeps MPTCP connections of this host from using all of its network cards
    ///
    /// Looks at the kernel's settings, and by `ip` of iproute2 at addresses, endpoints, limits and routes. For each finding it
    /// says why it matters, and the commands that mend it until the next boot. It changes nothing itself. The exit code is 1 if
    /// there is a problem; what is only noted may well be on purpose.
    Check {
        /// A target's address or host name, or the address of a path: routes to it are looked at too. Name all that it has
        #[arg(value_parser = target)]
        target: Vec<String>,
        /// Look only at this network interface, and others named so; at all of them if left out
        #[arg(long, value_name = "DEV")]
        dev: Vec<String>,
    },
    /// Delete the MPTCP endpoints of links that lose their carrier, and add them again once it is back, until interrupted
    ///
    /// The kernel ends the subflows of an endpoint that is deleted and sends what was under way on them elsewhere, at once. Without
    /// that it notices a lost link by timeouts, and connections stand still for a second or two. Links that are down at the
    /// start count as lost. At SIGTERM and SIGINT what is missing is added back; after SIGKILL it is not, and `check` tells
    /// of it. It uses `ip` of iproute2, and needs `CAP_NET_ADMIN`. With -o json each action is one line.
    Follow {
        /// Follow only this network interface, and others named so; all of them if left out
        #[arg(long, value_name = "DEV")]
        dev: Vec<String>,
    },
}

impl Command {
    pub(crate) fn run(&self, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Check { target, dev } => check(target, dev, output),
            Self::Follow { dev } => Ok(follow(dev, |done| output.print_one(done, line))?),
        }
    }
}

/// A text that is no target.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum TargetError {
    #[error("`{text}` is no address or host name of a target; give one such as 192.0.2.1, or none")]
    Blank { text: String },
    #[error(transparent)]
    Path(#[from] AddressError),
}

/// The host, of which the resolver is asked: that of a path's address, with or without its transport and its port, or whatever else the resolver may know.
fn target(text: &str) -> Result<String, TargetError> {
    let host = |address: PathAddress| match address.host() {
        Host::V6(ip) => ip.to_string(),
        host => host.to_string(),
    };
    if text.trim().is_empty() {
        Err(TargetError::Blank { text: text.into() })
    } else if text.contains("://") {
        Ok(host(text.parse()?))
    } else {
        Ok(format!("tcp://{text}").parse().map_or_else(|_| text.into(), host))
    }
}

fn check(target: &[String], dev: &[String], output: &mut Output) -> Result<(), Failure> {
    let findings = judge(&gather(target, dev)?);
    output.print(&findings, |findings| for_people(findings))?;
    let problems = findings.iter().any(|finding| finding.level == Level::Problem);
    if problems { Err(Failure::Told) } else { Ok(()) }
}

fn line(done: &Done) -> String {
    let Done { time, action, id, endpoint, link, why } = done;
    let action = match action {
        What::Removed => "removed",
        What::Added => "added",
        What::Abandoned => "abandoned",
    };
    format!("{time}  {link}  {action}  endpoint {id}, {endpoint}: {why}\n")
}

fn for_people(findings: &[Finding]) -> String {
    let findings: Vec<_> = findings.iter().map(finding).collect();
    findings.concat()
}

fn finding(finding: &Finding) -> String {
    let Finding { level, check, found, why, commands } = finding;
    let why = why.iter().map(|why| format!("         {why}\n"));
    let commands = commands.iter().map(|command| format!("         # {command}\n"));
    format!("{level:7}  {check}: {found}\n") + &why.chain(commands).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_named_as_a_path_is_or_by_its_host_alone() {
        for (texts, host) in [
            (
                &["192.0.2.1", "192.0.2.1:4420", "tcp://192.0.2.1", "mptcp://192.0.2.1:1?host-iface=eth0"][..],
                "192.0.2.1",
            ),
            (&["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:4420", "mptcp://[2001:db8::1]"], "2001:db8::1"),
            (&["Target", "target:8009", "tcp://target"], "target"),
            (&["fe80::1%lo"], "fe80::1%lo"),
            (&["target."], "target."),
        ] {
            for text in texts {
                assert_eq!(target(text), Ok(host.into()), "{text}");
            }
        }
    }

    #[test]
    fn what_people_see() {
        let ok = Finding {
            level: Level::Ok,
            check: "kernel",
            found: "MPTCP sockets can be made".into(),
            why: None,
            commands: Vec::new(),
        };
        let problem = Finding {
            level: Level::Problem,
            check: "limits",
            found: "subflows 0".into(),
            why: Some("too few".into()),
            commands: vec!["ip mptcp limits set subflows 3".into()],
        };
        let expected = "\
ok       kernel: MPTCP sockets can be made
problem  limits: subflows 0
         too few
         # ip mptcp limits set subflows 3
";
        assert_eq!(for_people(&[ok, problem]), expected);
    }
}
