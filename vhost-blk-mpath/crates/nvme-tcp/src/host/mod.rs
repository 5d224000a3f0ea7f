//! The host's side: queue pair and controller.
