//! Decides: a log line has this form.
//!
//! The log on stderr: as text or JSON, and with priorities if stderr is the journal.

use std::fmt;
use std::io::{self, Write};

use clap::ValueEnum;
use rustix::fs::fstat;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, JsonFields, Writer};
use tracing_subscriber::fmt::writer::MakeWriterExt;
use tracing_subscriber::fmt::{self as log, FmtContext};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::log_limit;

/// The form of the log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// A JSON object a line, with `timestamp`, `level`, `message` and the fields.
    Json,
}

/// The log of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log {
    format: LogFormat,
    is_journal: bool,
}

impl Log {
    /// Starts the log.
    pub(crate) fn start(format: LogFormat) -> Self {
        let is_journal = std::env::var("JOURNAL_STREAM").is_ok_and(|stream| is_stderr(&stream));
        let filter = EnvFilter::builder().with_default_directive(Level::INFO.into()).from_env_lossy();
        // By default a log line that cannot be written is reported on stderr, which then panics. No guest may lose its
        // disk for that.
        let lines = log::layer().with_writer(io::stderr.with_filter(log_limit::admits)).log_internal_errors(false);
        let event = log::format().with_target(false);
        let json = || event.clone().json().flatten_event(true);
        // The journal has its own time.
        let layer: Box<dyn Layer<Registry> + Send + Sync> = match (format, is_journal) {
            (LogFormat::Text, false) => lines.event_format(event).boxed(),
            (LogFormat::Text, true) => lines.event_format(WithPriority(event.without_time())).boxed(),
            (LogFormat::Json, false) => lines.fmt_fields(JsonFields::new()).event_format(json()).boxed(),
            (LogFormat::Json, true) => {
                lines.fmt_fields(JsonFields::new()).event_format(WithPriority(json().without_time())).boxed()
            }
        };
        tracing_subscriber::registry().with(layer.with_filter(filter)).init();
        Self { format, is_journal }
    }

    /// The reason for the end of the daemon. As text, it is a line for people without time and level.
    pub(crate) fn failure(self, error: impl fmt::Display) {
        match self.format {
            LogFormat::Text => {
                let priority = if self.is_journal { "<3>" } else { "" };
                let _ = writeln!(io::stderr(), "{priority}vhost-blk-mpath: {error}");
            }
            LogFormat::Json => tracing::error!("{error}"),
        }
    }
}

/// Whether this value of `JOURNAL_STREAM`, `DEVICE:INODE`, is stderr. It may be inherited by a process whose stderr goes
/// elsewhere (`systemd.exec(5)`).
fn is_stderr(stream: &str) -> bool {
    fstat(io::stderr()).is_ok_and(|stderr| stream == format!("{}:{}", stderr.st_dev, stderr.st_ino))
}

/// Puts the priority of a line in front, as the journal expects it (`sd-daemon(3)`).
struct WithPriority<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithPriority<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// The priority of syslog.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}
