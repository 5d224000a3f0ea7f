//! Errors, and requests that are invalid.

use super::*;

#[test]
fn errors_have_a_code_and_one_line() {
    let server = Running::start(Limits::default());
    for (method, target, body, status, error) in [
        ("GET", "/", "", 404, r#"{"error":{"code":"unknown-route","message":"unknown route /"}}"#),
        (
            "POST",
            "/v1/status",
            "",
            405,
            r#"{"error":{"code":"method-not-allowed","message":"/v1/status does not take POST"}}"#,
        ),
        (
            "GET",
            "/v1/paths?disk=x",
            "",
            404,
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows the disks"}}"#,
        ),
        (
            "GET",
            "/v1/disks?disk=x&setting=policy",
            "",
            404,
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows the disks"}}"#,
        ),
        (
            "PUT",
            "/v1/settings",
            r#"{"policy":{"name":"numa"},"disk":"x"}"#,
            404,
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows the disks"}}"#,
        ),
        (
            "PUT",
            "/v1/settings",
            "",
            400,
            r#"{"error":{"code":"bad-request","message":"body: EOF while parsing a value at line 1 column 0"}}"#,
        ),
        (
            "PUT",
            "/v1/settings",
            r#"{"weight":7,"dsk":"x"}"#,
            400,
            r#"{"error":{"code":"bad-request","message":"body: dsk: unknown field `dsk`: did you mean `disk`? Expected one of `disk`, `all`, `policy`, `scheduler`, `limits`, `weight`, `hedge`, `hedge-budget`, `min-paths` at line 1 column 17"}}"#,
        ),
        (
            "DELETE",
            "/v1/injections?path=9",
            "",
            404,
            r#"{"error":{"code":"unknown-path","message":"no path is `9`; `mpathctl path list` shows the paths"}}"#,
        ),
        (
            "PUT",
            "/v1/paths",
            r#"{"path":"all","disk":"a","action":"drain"}"#,
            409,
            r#"{"error":{"code":"last-path","message":"disk `a` would have no usable path left, and its I/O would wait; enable another path first, or use --force"}}"#,
        ),
        (
            "DELETE",
            "/v1/injections?disk=x",
            "",
            404,
            r#"{"error":{"code":"unknown-disk","message":"no disk is named `x`; `mpathctl status` shows the disks"}}"#,
        ),
    ] {
        assert_eq!(server.request(method, target, body), (status, error.into()), "{method} {target}");
    }
    for (method, target, body, part) in [
        ("GET", "/v1/paths?dsk=a", "", "query: unknown parameter `dsk`; known: `path` or `disk`"),
        ("PUT", "/v1/settings", r#"{"policy":{"name":"fastest"}}"#, "latency-rr"),
        ("GET", "/v1/disks?setting=queues", "", "query: setting: unknown variant `queues`, expected one of `policy`,"),
        ("PUT", "/v1/paths", r#"{"path":"0","action":"destroy"}"#, "`enable`, `drain`, `disable`, `reset`"),
        ("POST", "/v1/disks/a/paths", r#"{"address":"rdma://x"}"#, "unknown transport `rdma`"),
        ("POST", "/v1/disks/a/paths", r#"{"address":"tcp://x","force":true}"#, "unknown field `force`"),
        ("DELETE", "/v1/disks/a/paths/0?force=maybe", "", "query: force: `maybe` is not true or false"),
        ("DELETE", "/v1/disks/a?force=", "", "force: `` is not true or false"),
        ("DELETE", "/v1/disks/a/paths/a%20b", "", "message\":\"route: "),
        ("DELETE", "/v1/disks/a/paths/a%20b", "", "no host name"),
        ("GET", "/v1/events?after=-1", "", "after: `-1` is not the number of an event, or 0 for all"),
        ("GET", "/v1/events?wait=5s", "", "unknown parameter `wait`"),
        (
            "PUT",
            "/v1/paths",
            r#"{"path":"0","action":"drain","force":"x"}"#,
            r#"body: force: invalid type: string \"x\", expected a boolean"#,
        ),
        ("PUT", "/v1/settings", r#"{"weight":7} x"#, "body: trailing characters"),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","window":{"ios":0}}"#,
            "body: window.ios: invalid value: integer `0`, expected an integer from 1 to 1024",
        ),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","name":".."}"#,
            "body: name: `..` is no disk name",
        ),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","paths":[{}]}"#,
            "body: paths[0]: invalid type: map",
        ),
        (
            "PUT",
            "/v1/injections",
            r#"{"path":"0","injection":{"latency-us":0}}"#,
            "`0` is out of range: an injected time is 1us to 60s",
        ),
        ("PUT", "/v1/injections", r#"{"path":"rdma://x","injection":{"latency-us":1}}"#, "unknown transport `rdma`"),
        ("DELETE", "/v1/injections?path=a%20b", "", "no host name"),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","read_only":true}"#,
            "body: read_only: unknown field `read_only`: write `read-only` at line 1",
        ),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","io-timeout":30}"#,
            "body: io-timeout: `30` is not a time from 1s to 600s; give a number and its unit",
        ),
        (
            "POST",
            "/v1/disks",
            r#"{"socket-path":"/s","subsystem":"nqn.a","keep-alive-tmo":"5x"}"#,
            "body: keep-alive-tmo: `5x` is not a whole number of seconds from 1 to 600, such as 5 or 5s",
        ),
    ] {
        let (status, body) = server.request(method, target, body);
        assert!(status == 400 && body.contains(part), "{method} {target}: {status} {body}");
    }
    assert_eq!(server.client().injections(None).unwrap(), []);
}
