//! `mpathctl mptcp`

use clap::Subcommand;
use mpath_config::PathAddress;
use mpath_config::address::{AddressError, Host};

use crate::mptcp::{Done, Finding, Level, What, follow, gather, judge};
use crate::output::Output;
use crate::{Failure, Kind};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Find what prevents MPTCP connections of this host from using all of its network interfaces
    ///
    /// The command reads kernel settings, and uses `ip` of iproute2 to read addresses, endpoints, limits and routes. For each finding it
    /// prints the reason, and commands that correct it until the next boot. It changes nothing. The exit code is 4 if there is a problem.
    /// A finding of level `note` may be what you want. It leaves the exit code 0.
    Check {
        /// Address or host name of a target, or address of a path: check the routes to it too. Give every address of the target
        #[arg(value_parser = target)]
        target: Vec<String>,
        /// Check only this network interface; repeat for each [default: all]
        #[arg(long, value_name = "DEV")]
        dev: Vec<String>,
    },
    /// Delete the MPTCP endpoints of links that go down, and add them again once the links are up, until interrupted
    ///
    /// When an endpoint is deleted, the kernel ends its subflows and sends their data over others at once. Otherwise the kernel notices a
    /// lost link by timeouts, and connections stall for a second or two. Links that are down at the start count as lost. At SIGTERM and
    /// SIGINT the command adds deleted endpoints again. After SIGKILL they stay deleted, and `check` reports them. The command uses `ip` of
    /// iproute2 and needs `CAP_NET_ADMIN`. With -o json each action is one line.
    Follow {
        /// Follow only this network interface; repeat for each [default: all]
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

/// Why a text is no target.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum TargetError {
    #[error("`{text}` is no address or host name of a target; give one such as 192.0.2.1, or none")]
    Blank { text: String },
    #[error(transparent)]
    Path(#[from] AddressError),
}

/// The host to resolve: the host of a path address with or without transport and port, or any other text.
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
    if problems { Err(Failure::Reported(Kind::Problems)) } else { Ok(()) }
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
