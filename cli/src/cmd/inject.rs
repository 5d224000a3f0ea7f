//! `mpathctl inject`

use clap::{Args, Parser, Subcommand};
use mpath_api::client::Client;
use mpath_api::types::{
    Direction, Distribution, InjectedLatency, InjectedMilliseconds, InjectedPath, InjectedRate, InjectedShare,
    InjectedStatus, Injection, InjectionError, InjectionInForce, OpClass, PathSelector, SetInjection,
};
use mpath_config::{one_of, usage_line};

use super::DiskArg;
use super::last_change::with_changes;
use crate::Failure;
use crate::output::{Column, Output, Table, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set an injection on a path, for every disk unless --disk is given, in place of its earlier ones
    ///
    /// With --class, only for that class, in place of the earlier one of that class. Requests that an earlier injection holds go on at
    /// once.
    Set(Box<SetArgs>),
    /// Clear the injections of a path, for every disk unless --disk is given, and show them
    ///
    /// Requests that they hold go on at once and in order.
    Clear {
        /// Address, index or `all`, as for `inject set`
        #[arg(default_value = "all", allow_negative_numbers = true)]
        path: PathSelector,
        #[command(flatten)]
        disk: DiskArg,
    },
    /// List injections
    List(DiskArg),
}

#[derive(Debug, Args)]
#[command(
    override_usage = "mpathctl inject set <PATH> {--latency <TIME>|--jitter <TIME>|--rate <BYTES>|--error-rate <SHARE>}... [OPTIONS]\n       \
    mpathctl inject set <PATH> --stall [OPTIONS]"
)]
pub(crate) struct SetArgs {
    /// An address (`tcp://127.0.0.1:4421`, or without `tcp://`), an index from `path list`, or `all`
    #[arg(allow_negative_numbers = true)]
    path: PathSelector,
    #[command(flatten)]
    injection: InjectionArgs,
    #[command(flatten)]
    disk: DiskArg,
}

#[derive(Debug, Args)]
struct InjectionArgs {
    /// Added latency, 1us to 60s, such as 500us, 30ms or 1.5s
    #[arg(long, value_name = "TIME")]
    latency: Option<InjectedLatency>,
    /// Jitter of the added latency, 1us to 60s, such as 5ms
    #[arg(long, value_name = "TIME")]
    jitter: Option<InjectedLatency>,
    /// Distribution of the jitter [default: uniform]
    #[arg(long, value_name = "NAME", value_parser = one_of::<Distribution>(Distribution::NAMES))]
    distribution: Option<Distribution>,
    /// Bandwidth in bytes per second, 64KiB to 100GiB, such as 100MiB
    #[arg(long, value_name = "BYTES")]
    rate: Option<InjectedRate>,
    /// Share of I/Os that fail, 0.0001% to 100%, such as 1% or 0.01
    #[arg(long, value_name = "SHARE")]
    error_rate: Option<InjectedShare>,
    /// Status of failing I/Os [default: path-error]
    #[arg(long, value_name = "NAME", value_parser = one_of::<InjectedStatus>(InjectedStatus::NAMES))]
    status: Option<InjectedStatus>,
    /// Hold all I/Os until the injection ends
    #[arg(long)]
    stall: bool,
    /// Only this class of I/Os; other is flush, discard and write zeroes
    #[arg(long, value_name = "CLASS", value_parser = one_of::<OpClass>(OpClass::NAMES))]
    class: Option<OpClass>,
    /// Impair I/Os before they are sent (request), or after they were executed (response)
    #[arg(
        long,
        value_name = "WAY",
        default_value = "request",
        value_parser = one_of::<Direction>(Direction::NAMES)
    )]
    direction: Direction,
    /// Seed of the random numbers for jitter and errors
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// End the injection by itself after this time, 1ms to 24h, such as 30s or 5m [default: stays until it is cleared]
    #[arg(long = "for", value_name = "TIME")]
    lasting: Option<InjectedMilliseconds>,
}

/// The options of an injection alone, as typed in `top`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    injection: InjectionArgs,
}

/// The injection that a line of options describes, and how long it lasts.
pub(crate) fn injection_line(line: &str) -> Result<(Injection, Option<InjectedMilliseconds>), String> {
    let parsed = Line::try_parse_from(line.split_whitespace());
    let Line { injection } = parsed.map_err(|error| usage_line(&error).unwrap_or_else(|| error.to_string()))?;
    let checked = injection.injection().map_err(|error| error.to_string())?;
    Ok((checked, injection.lasting))
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let paths = match self {
            Self::Set(set) => client.set_injection(&SetInjection {
                path: set.path.clone(),
                disk: set.disk.disk.clone(),
                injection: set.injection.injection().map_err(Failure::Injection)?,
                for_ms: set.injection.lasting,
            })?,
            Self::Clear { path, disk: DiskArg { disk } } => client.clear_injections(path, disk.as_deref())?,
            Self::List(DiskArg { disk }) => client.injections(disk.as_deref())?,
        };
        // A cleared injection must not look as if it was in force.
        let header = if matches!(self, Self::Clear { .. }) { "WAS" } else { "INJECTION" };
        Ok(output.print(&paths, |paths| for_people(paths, header))?)
    }
}

impl InjectionArgs {
    fn injection(&self) -> Result<Injection, InjectionError> {
        let injection = Injection {
            class: self.class,
            direction: self.direction,
            latency_us: self.latency,
            jitter_us: self.jitter,
            distribution: self.distribution,
            rate: self.rate,
            error_rate_ppm: self.error_rate,
            status: self.status,
            stall: self.stall,
            seed: self.seed,
        };
        injection.checked()
    }
}

fn for_people(paths: &[InjectedPath], header: &'static str) -> Table {
    let columns = [
        Column::Text("DISK"),
        Column::Number("#"),
        Column::Text("ADDRESS"),
        Column::Text("CLASS"),
        Column::Text("DIRECTION"),
        Column::LateNumber("SEED"),
        Column::Number("LEFT(s)"),
        Column::Long(header),
    ];
    let row = |path: &InjectedPath| {
        let InjectionInForce { injection, ends_in_ms, .. } = &path.injection;
        [
            path.disk.clone(),
            path.index.to_string(),
            path.address.to_string(),
            injection.class.map_or("all".into(), |class| class.to_string()),
            injection.direction.to_string(),
            injection.seed.to_string(),
            or_dash(ends_in_ms.map(|ms| ms.div_ceil(1000))),
            injection.to_string(),
        ]
    };
    let changes: Vec<_> = paths.iter().map(|path| path.injection.changed.as_ref()).collect();
    with_changes(table(columns, paths.iter().map(row)), &changes)
}
