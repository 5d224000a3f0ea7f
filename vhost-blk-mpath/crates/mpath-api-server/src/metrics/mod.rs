//! `GET /metrics`: the state and the counters of the API, for Prometheus.

mod metric;
mod subflow_groups;
mod tables;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use mpath_api::types::{DiscoveryController, IoThread, Path, SchedulerDetail, Status};
use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;

use self::metric::{Labels, Metric, with};
use self::subflow_groups::subflow_groups;
use super::Control;
use super::error::ApiError;

/// The metrics in the text format of Prometheus (0.0.4).
#[utoipa::path(get, path = "/metrics", responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn metrics<C: Control>(State(control): State<Arc<C>>) -> Result<Response, ApiError> {
    let (status, paths, scheduling) = (control.status().await?, control.paths().await?, control.scheduling().await?);
    let body = Body::new(Exposition(exposition(status, paths, scheduling)));
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], body).into_response())
}

/// The body of the answer, metric by metric. A metric is made when the client has read most of those before it. With thousands of
/// paths the whole text would be large and would keep the daemon busy.
struct Exposition<I>(I);

impl<I: Iterator<Item = String> + Unpin> hyper::body::Body for Exposition<I> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.next().map(|metric| Ok(Frame::data(metric.into()))))
    }
}

/// The text, metric by metric.
fn exposition(
    mut status: Status,
    paths: Vec<Path>,
    scheduling: Vec<SchedulerDetail>,
) -> impl Iterator<Item = String> + Send + Unpin + 'static {
    let of_disk = |disk: &str| vec![("disk", disk.to_owned())];
    let of_path = |path: &Path| with(&of_disk(&path.disk), "path", &path.address);
    let (disks, discovery) = (std::mem::take(&mut status.disks), std::mem::take(&mut status.discovery));

    let (mut failovers, mut queues, mut classes, mut subflows) = (vec![], vec![], vec![], vec![]);
    let (mut errors, mut guest_io, mut stages) = (vec![], vec![], vec![]);
    for disk in &disks {
        guest_io
            .extend(disk.guest.guest_io.iter().map(|of| (with(&of_disk(&disk.name), "operation", of.operation), *of)));
        stages.extend(
            disk.guest.long_requests.named().map(|(stage, time)| (with(&of_disk(&disk.name), "stage", stage), time)),
        );
        errors.extend(
            disk.health.guest_errors.iter().map(|of| {
                (with(&with(&of_disk(&disk.name), "operation", of.operation), "reason", of.reason), of.clone())
            }),
        );
    }
    // The disk that has the paths has the counts of all disks over them.
    let mut with_paths = disks.clone();
    with_paths.retain(|disk| disk.shares_paths_of.is_none());
    // Each serves several disks.
    let io_threads: BTreeMap<u16, IoThread> =
        with_paths.iter().flat_map(|disk| &disk.io_threads).map(|of| (of.thread, *of)).collect();
    for disk in &with_paths {
        for (class, moved) in [("read", disk.moved_reads), ("write", disk.moved_writes)] {
            failovers.push((with(&of_disk(&disk.name), "class", class), moved));
        }
    }
    for detail in &scheduling {
        queues.extend(detail.queues.iter().map(|queue| (with(&of_disk(&detail.disk), "queue", queue.queue), *queue)));
    }
    for path in &paths {
        for ((local, remote), group) in subflow_groups(path) {
            subflows.push((with(&with(&of_path(path), "local", local), "remote", remote), group));
        }
        classes.extend(path.classes().map(|(class, stats)| (with(&of_path(path), "class", class), stats.clone())));
    }
    let of_thread = |of: &IoThread| vec![("thread", of.thread.to_string())];
    let of_controller =
        |of: &DiscoveryController| with(&with(&of_disk(&of.disk), "controller", &of.address), "subnqn", &of.subnqn);

    metrics_of(tables::DAEMON, vec![(Labels::new(), status)])
        .chain(metrics_of(tables::DISKS, labelled(disks, |disk| of_disk(&disk.name))))
        .chain(metrics_of(tables::GUEST_IO, guest_io))
        .chain(metrics_of(tables::STAGES, stages))
        .chain(metrics_of(tables::GUEST_ERRORS, errors))
        .chain(metrics_of(tables::WITH_PATHS, labelled(with_paths, |disk| of_disk(&disk.name))))
        .chain(metrics_of(tables::IO_THREADS, labelled(io_threads.into_values().collect(), of_thread)))
        .chain(metrics_of(tables::FAILOVERS, failovers))
        .chain(metrics_of(tables::SCHEDULING, labelled(scheduling, |of| of_disk(&of.disk))))
        .chain(metrics_of(tables::VIRTQUEUES, queues))
        .chain(metrics_of(tables::PATHS, labelled(paths, of_path)))
        .chain(metrics_of(tables::SUBFLOWS, subflows))
        .chain(metrics_of(tables::CLASSES, classes))
        .chain(metrics_of(tables::DISCOVERY, labelled(discovery, of_controller)))
}

fn labelled<T>(things: Vec<T>, labels: impl Fn(&T) -> Labels) -> Vec<(Labels, T)> {
    things.into_iter().map(|thing| (labels(&thing), thing)).collect()
}

/// The metrics of one table.
fn metrics_of<T: Debug + Send + Sync + 'static>(
    metrics: &'static [Metric<T>],
    things: Vec<(Labels, T)>,
) -> impl Iterator<Item = String> {
    let things = Arc::new(things);
    metrics.iter().map(move |metric| metric.text(&things))
}
