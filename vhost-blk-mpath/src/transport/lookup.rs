//! Looks host names up, a bounded number at a time.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// The most lookups at a time. A lookup without an answer occupies a thread for longer than the attempt to connect waits. Without a
/// limit, a name server that does not answer would use up the threads that write fence records.
const LOOKUPS_MAX: usize = 64;
static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_MAX);

/// The socket addresses of a host name. The caller limits the time.
pub(super) async fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let name = name.to_owned();
    limited(&LOOKUPS, move || Ok((name.as_str(), port).to_socket_addrs()?.collect())).await
}

/// Runs a lookup when there is a place for it. The lookup keeps its place until it ends, even if this future is dropped before.
async fn limited<T: Send + 'static>(
    places: &'static Semaphore,
    look_up: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let place = places.acquire().await.expect("nobody closes it");
    let looked_up = spawn_blocking(move || {
        let _place = place;
        look_up()
    });
    looked_up.await.unwrap_or_else(|failed| Err(io::Error::other(failed)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn a_lookup_without_an_answer_keeps_its_place_and_no_other() {
        static PLACES: Semaphore = Semaphore::const_new(2);
        let mut answers = Vec::new();
        for _ in 0..2 {
            let ((begins, begun), (answer, answered)) = (oneshot::channel(), mpsc::channel::<()>());
            let attempt = tokio::spawn(limited(&PLACES, move || {
                let _ = begins.send(());
                let _ = answered.recv();
                Ok(())
            }));
            begun.await.unwrap();
            // The attempt to connect gives up, and the lookup goes on.
            attempt.abort();
            assert!(attempt.await.unwrap_err().is_cancelled());
            answers.push(answer);
        }
        let third = tokio::spawn(limited(&PLACES, || Ok(7)));
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(!third.is_finished() && PLACES.available_permits() == 0);
        answers.pop();
        assert_eq!(third.await.unwrap().unwrap(), 7);
    }

    #[tokio::test]
    async fn a_name_has_addresses_with_the_port() {
        let found = look_up("localhost", 4420).await.unwrap();
        assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback() && address.port() == 4420));
    }
}
