//! The command line.

use clap::Parser;
use clap::error::ErrorKind;
use mpath_target::{ListenerConfig, NamespaceConfig, TargetConfig};

const AFTER_HELP: &str = "\
LISTENER is IP:PORT[,delay=TIME][,ana=STATE]
  Each listener is a port of the one subsystem; port ids count from 1.
  PORT 0 lets the system choose.
  TIME is how long every I/O command takes at least, in ns, us, ms or s.
  STATE is the port's ANA state: optimized (default), non-optimized,
  inaccessible, persistent-loss or change.

NAMESPACE is mem:SIZE[,uuid=UUID] or file:PATH:SIZE[,uuid=UUID]
  Namespace ids count from 1. SIZE is in bytes, or with KiB, MiB, GiB or TiB.
  A file is created if it does not exist.
  Without UUID a memory namespace gets a new identity at each start, as its
  content is new; hosts that knew the old one will refuse it.

Output, once all listeners are ready, is one line for each:
  listening on ADDR nqn NQN port ID

Exit status
  0  ended by SIGTERM or SIGINT
  1  an address or a file cannot be used
  2  bad arguments

Example
  mpath-target --nqn nqn.2024-01.com.example:disk1 --namespace mem:1GiB \\
      --listen 127.0.0.1:4420 --listen 127.0.0.1:4421,delay=30ms";

/// NVMe/TCP target in user space: one subsystem, any number of ports, memory or file namespaces.
#[derive(Debug, Parser)]
#[command(name = "mpath-target", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Name of the subsystem, as in nqn.2024-01.com.example:disk1
    #[arg(long, value_name = "NQN")]
    nqn: String,

    /// Where to listen (see below); repeat for more ports
    #[arg(long, value_name = "LISTENER", required = true)]
    listen: Vec<ListenerConfig>,

    /// What to serve (see below); repeat for more namespaces
    #[arg(long, value_name = "NAMESPACE", required = true)]
    namespace: Vec<NamespaceConfig>,

    /// Logical block size of all namespaces: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    block_size: u32,
}

/// What the command line asks for.
pub(crate) enum Request {
    /// Print this text and be done.
    Print(String),
    /// Serve.
    Serve(TargetConfig),
}

impl Request {
    /// Reads the command line; the error is one line.
    pub(crate) fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Self, String> {
        let args = match Args::try_parse_from(args) {
            Ok(args) => args,
            Err(error) if !error.use_stderr() => return Ok(Self::Print(error.to_string())),
            Err(error) => return Err(one_line(&error)),
        };
        let config = TargetConfig {
            listeners: args.listen,
            namespaces: args.namespace,
            block_size: args.block_size,
            ..TargetConfig::new(args.nqn)
        };
        config.validate().map_err(|error| error.to_string())?;
        Ok(Self::Serve(config))
    }
}

/// clap's message without the usage and hints below it.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let message = text.split("\n\n").next().unwrap_or(text);
    let words: Vec<&str> = message.split_whitespace().collect();
    let mut line = words.join(" ");
    if error.kind() == ErrorKind::MissingRequiredArgument {
        line.push_str("; see --help");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str = "nqn.2024-01.com.example:disk1";

    fn parse(args: &str) -> Result<Request, String> {
        Request::parse(std::iter::once("mpath-target").chain(args.split_whitespace()).map(Into::into))
    }

    #[test]
    fn everything_given() {
        let args = format!(
            "--nqn {NQN} --listen 127.0.0.1:0 --listen [::1]:0,delay=30ms --namespace mem:1MiB \
             --namespace mem:2MiB --block-size 4096"
        );
        let Ok(Request::Serve(config)) = parse(&args) else { panic!("refused") };
        assert_eq!(config.nqn, NQN);
        assert_eq!((config.listeners.len(), config.namespaces.len()), (2, 2));
        assert_eq!(config.block_size, 4096);
    }

    #[test]
    fn errors_are_one_line_and_name_what_is_wrong() {
        let rest = "--namespace mem:1MiB";
        for (args, word) in [
            (String::new(), "--nqn"),
            (format!("--nqn {NQN} --listen here {rest}"), "here"),
            (format!("--nqn {NQN} --listen 127.0.0.1:0,delay=fast {rest}"), "fast"),
            (format!("--nqn {NQN} --listen 127.0.0.1:0 --namespace mem:huge"), "huge"),
            (format!("--nqn {NQN} --listen 127.0.0.1:0 {rest} --block-size 1000"), "1000"),
            (format!("--nqn disk1 --listen 127.0.0.1:0 {rest}"), "disk1"),
            (format!("--nqn {NQN} --listen 127.0.0.1:0 {rest} --colour"), "--colour"),
        ] {
            let error = parse(&args).err().expect(word);
            assert!(error.contains(word), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn help_explains_listeners_and_namespaces() {
        let Ok(Request::Print(text)) = parse("--help") else { panic!("no help") };
        for word in ["delay=TIME", "ana=STATE", "file:PATH:SIZE", "--block-size", "Exit status"] {
            assert!(text.contains(word), "{word}");
        }
    }
}
