//! What runs are made of.

use std::ops::AddAssign;

/// Declares [`Counts`], whose fields add up, and after a `;` one field of which the largest value counts.
macro_rules! counts {
    ($($(#[$doc:meta])* $sum:ident,)* ; $(#[$max_doc:meta])* $max:ident) => {
        /// The numbers of events of a run, or of several runs.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $sum: u64,)*
            $(#[$max_doc])* pub $max: u64,
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, one: Self) {
                $(self.$sum += one.$sum;)*
                self.$max = self.$max.max(one.$max);
            }
        }
    };
}

counts! {
    /// Requests answered.
    answered,
    /// Requests answered over packed rings.
    answered_over_packed_rings,
    /// Requests answered with an error.
    failed,
    /// Requests that succeeded though commands had failed that may belong to them.
    repeated,
    /// Attempts of writes that were lost with a connection.
    writes_lost,
    /// Caches that nodes dropped as they failed a flush.
    caches_dropped,
    /// Requests of disks other than the first that were answered.
    answered_by_other_disks,
    /// Runs with several disks.
    runs_with_several_disks,
    /// Times that one disk lost a path and other disks kept it.
    disk_paths_lost,
    /// Associations that ended because another namespace replaced that of one of several disks.
    ended_by_replaced_namespace,
    /// Attempts and associations that ended because a namespace had no name to compare.
    unverified,
    /// Associations with fewer I/O queues than the host has I/O threads.
    fewer_queues,
    /// Attempts that ended because virtqueues needed more I/O queues than the controller granted.
    queues_lacking,
    /// Parts of ANA logs that were read after the first.
    ana_parts,
    /// Namespaces that moved to another ANA group.
    ana_moves,
    /// Namespaces that became usable on a live association.
    namespaces_added,
    /// Runs with a disk that no fault concerned.
    runs_with_spared_disk,
    /// Changes of the store.
    store_changes,
    /// Changes of the store by commands whose connection was gone.
    late_store_changes,
    /// Blocks whose visible content a crash took.
    blocks_lost,
    /// Persistent losses of a namespace that took data from a cache.
    caches_lost,
    /// Reads sent a second time.
    hedges,
    /// Hedges whose data the guest was given.
    hedges_won,
    /// Associations lost.
    associations_lost,
    /// Fences that a Cross-Controller Reset has lifted.
    cross_resets,
    /// Associations that were lost and drained.
    associations_drained,
    /// I/O connections that their host ended while commands were under way there.
    drained_with_commands,
    /// I/O connections that ended before everything they had received was executed, though their host had ended them.
    drains_cut,
    /// Fences that a drain has lifted.
    fences_lifted_by_drain,
    /// Paths removed.
    removals,
    /// Flushes of the daemon itself before it closed a path.
    daemon_flushes,
    /// Removals that were held because no other path was usable.
    removals_held,
    /// Removals that were taken back.
    removals_taken_back,
    /// Paths added because a discovery controller listed them.
    discovered,
    /// Paths that are to be removed because no discovery controller lists them.
    unlisted,
    /// Paths that a daemon tried before it had read a log, because an earlier daemon had discovered them.
    tried_as_saved,
    /// Discovery logs that were read on sessions which only keep-alives can have kept open.
    sessions_kept_alive,
    /// Associations that the operator ended and that owed nothing.
    closed_in_order,
    /// Daemons killed.
    kills,
    /// Disks that waited for first attempts after their inherited fence.
    held_for_attempts,
    /// Disks that have grown.
    disks_grown,
    /// Restored disks that were larger when the first path found their namespace.
    grown_while_no_daemon_ran,
    /// Times that a step of the opening of a disk failed and was repeated.
    openings_repeated,
    /// Daemons that ended in order.
    restarts,
    /// Times that all disks were removed from a running daemon.
    disks_replaced,
    /// Removals of all disks that left a fence.
    removed_in_doubt,
    /// Fences of removed disks that a new disk has inherited.
    pending_fences,
    /// Front-ends that hung up.
    hang_ups,
    /// Front-ends without an in-flight log that connected while their guest waited for answers.
    continued_without_log,
    /// Times that a front-end had stopped all its virtqueues.
    queue_stops,
    /// Times that virtqueues stopped while their I/O threads had no path.
    stops_without_path,
    /// Requests with longer chains than disk and virtqueue allow.
    long_chains,
    /// Times that all virtqueues of a guest had stopped during a migration.
    migrations,
    /// Guests that went on in the copy of their memory that a migration had made.
    moves,
    /// Virtual machines whose memory was truncated.
    truncations,
    /// Virtual machines with truncated memory that the daemon hung up on.
    hung_up_by_daemon,
    /// Changes of the store with zeroes in place of data whose memory was gone.
    torn_writes,
    /// Requests that ended with their daemon or their virtual machine.
    given_up,
    /// R2Ts that a node spoilt.
    spoilt_r2ts,
    /// Connections from which a node reads nothing more, after an error for a write whose data it had requested.
    connections_deaf,
    /// Times that an I/O thread received a protocol error of a controller.
    protocol_errors,
    /// Live associations that ended because the controller did not answer in time.
    associations_timed_out,
    /// Write Zeroes above a limit that no controller reports.
    too_large_refused,
    /// Connections that the target closed in order while commands were under way there.
    closed_with_commands,
    /// Handshakes that were not answered in time.
    handshakes_unanswered,
    /// Commands that had their data in the capsule.
    in_capsule,
    /// Commands whose data were requested by R2Ts.
    requested_by_r2t,
    /// Runs in which all controllers share one cache.
    runs_with_shared_cache,
    /// Pieces of commands that were executed before the last one.
    pieces,
    /// Commands that were executed in part, and never to their end.
    commands_cut,
    /// Pieces of streams that a link delayed.
    pieces_delayed,
    /// Deliveries that waited for the end of a freeze of one connection.
    deliveries_frozen,
    /// Digest errors that either end noticed.
    digest_errors,
    /// Runs with TLS.
    runs_with_tls,
    /// Handshakes of TLS that failed at the host.
    handshakes_failed,
    /// Sessions of TLS that failed at the target.
    sessions_failed,
    /// Records of which an I/O thread received all bytes, and one of them changed.
    records_changed,
    /// Times that bytes waited for a node which stood still.
    waits_for_paused_node,
    /// Commands of slow nodes.
    commands_slowed,
    /// Runs in which all nodes were slow and nothing failed.
    slow_arrays,
    /// Blocks that these nodes read a second time.
    slow_array_reads_repeated,
    /// Commands that a node lost, or the answers to them.
    commands_lost,
    /// Responses sent twice.
    responses_repeated,
    /// Cross-Controller Resets that a node refused.
    cross_resets_refused,
    /// Cross-Controller Resets of which a node said that they had only begun.
    cross_resets_begun,
    /// Connections that ended with the Cross-Controller Reset on them.
    cross_resets_deadly,
    /// Policies that an I/O thread changed.
    policies_changed,
    /// Weights that an I/O thread changed.
    weights_changed,
    /// Requests that an injection held when it was cleared.
    held_by_injection,
    /// Disks that an I/O thread throttled because of their limits.
    disks_throttled,
    /// Discovery logs read on sessions that are not persistent, each of which reads one.
    logs_polled,
    /// Discovery sessions that ended as their controller accepts no persistent ones.
    persistence_refused,
    /// Discovery sessions that ended without an answer.
    sessions_silent,
    /// Associations that were not recorded, as the write failed.
    records_not_written,
    /// Growths of disks that were not saved.
    sizes_not_saved,
    /// Losses of a shared cache that took data from it.
    shared_caches_lost,
    /// Events.
    events,
    ;
    /// Bytes in the largest capsule.
    capsule_bytes_max
}
