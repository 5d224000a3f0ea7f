//! `mpathctl explain` and `mpathctl slow`.

use crate::daemon::Daemon;

#[test]
fn explain() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.run(&["explain", "disk0"]),
        "\
disk0: degraded, policy round-robin
  degraded: 1 of 2 expected paths are usable: path 1: lost

I/O thread 0, virtqueue 0, 2

read of 4096 bytes that would come now: takes path 0
#  ADDRESS               STATE  BUSY  POLICY SAYS          WHY NOT   NOTES
0  tcp://127.0.0.1:4420  live      3  answers in 0.210 ms  -         -
1  tcp://127.0.0.1:4421  lost      3  -                    not live  lost: Connection refused (os error 111)

write of 65536 bytes that waits for a path: waits: no path has room; the limits of the disk let it go in 87.00 ms
#  ADDRESS               STATE  BUSY  POLICY SAYS  WHY NOT   NOTES
0  tcp://127.0.0.1:4420  live      3  takes turns  no room   -
1  tcp://127.0.0.1:4421  lost      3  -            not live  lost: Connection refused (os error 111)

flush: must reach path 0, path 1 (fails: unflushed writes were lost)

WAITS FOR               PATH  REQUESTS  OLDEST(ms)  ENDS IN(ms)  BEHIND
the limits of the disk     -         2        3.25        87.00       1
the answer of its path     0         2        3.25            -       0
"
    );
    let json: serde_json::Value = serde_json::from_str(&daemon.run(&["-o", "json", "explain", "disk0"])).unwrap();
    let path = &json["threads"][0]["write"]["paths"][0];
    assert_eq!((&path["reason"], &path["opinion"]["says"]), (&"window-full".into(), &"turn".into()));
    assert_eq!(json["threads"][0]["write"]["limit-left-us"], 87_000);
    let (code, told) = daemon.fail(&["explain", "disk9"]);
    assert!(code == 1 && told.contains("disk9"), "{told}");
}

#[test]
fn slow() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.run(&["slow"]),
        "\
ENDED                     DISK   OP     SECTOR  BYTES  TOTAL(ms)  STAGES(ms)                PATHS  TRIES  RESULT
2026-11-21T07:00:01.000Z  disk1  flush       -      0     150.25  retry 100.00, path 50.00  0,1        2  attempts
2026-11-21T07:00:01.000Z  disk0  read     8192   4096      30.21  injection 30.00           1          1  ok
"
    );
    let json: serde_json::Value = serde_json::from_str(&daemon.run(&["-o", "json", "slow", "disk0"])).unwrap();
    assert_eq!((&json[0]["longest"], &json[0]["stages"]["injection-us"]), (&"injection".into(), &30_000.into()));
    assert_eq!((json.as_array().unwrap().len(), daemon.run(&["slow", "-n", "1"]).lines().count()), (1, 2));
    let (code, told) = daemon.fail(&["slow", "disk9"]);
    assert!(code == 1 && told.contains("disk9"), "{told}");
}
