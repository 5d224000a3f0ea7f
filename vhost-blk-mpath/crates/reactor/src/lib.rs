//! I/O threads with one `io_uring` each. A thread serves parts of many path sets. A part owns its virtqueues and one NVMe/TCP queue
//! pair for each path, so a request needs no lock.
//!
//! Other threads control a part through its [`IoThreadHandle`]. The part reports [`PathEvent`]s.

mod by_id;
mod connected_queue_pair;
mod connection;
mod connections;
mod disk_queues;
mod encryption;
mod event_loop;
mod interrupt_timer;
mod io_thread;
mod io_thread_control;
mod io_thread_handle;
mod io_thread_message;
mod io_threads;
mod path_event;
mod polling;
mod processor_times;
mod requests;
mod ring;
mod ring_token;
mod runnable;
mod send_budget;
mod shutdown;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod thread_explanation;
mod thread_message;
mod translate;
mod usdt;
mod wake_channel;

pub use connected_queue_pair::{CloseMode, ConnectedQueuePair};
pub use disk_queues::{DiskQueues, DrainTime};
pub use interrupt_timer::interrupt_signal;
pub use io_thread::IoThread;
pub use io_thread_control::{IoThreadControl, StartError, rehearse_start};
pub use io_thread_handle::{IoThreadHandle, StoppingQueue};
pub use io_thread_message::IoThreadMessage;
pub use io_threads::IoThreads;
pub use path_event::{LossReason, PathEvent, PathEventKind};
pub use processor_times::ProcessorTimes;
pub use ring::{Ring, RingError, SimulatedRing, SocketCall, reset};
pub use shutdown::ThreadsShutdown;
pub use thread_explanation::ThreadExplanation;
pub use thread_message::PathSetPart;
pub use translate::outcome_of;
