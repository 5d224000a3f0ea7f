//! The OpenAPI document: as checked in, true of every answer, and strict about what types accept.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use mpath_api::types::{InjectedLatency, InjectedMilliseconds, InjectedRate, InjectedShare};
use mpath_config::{
    Account, DiscoveryAddress, DiskName, Hedge, HedgeBudget, KeepAliveTmo, LimitBandwidth, LimitBurst, LimitIops,
    MaxTransfer, Nqn, PollUs, QueueCount, SocketMode, SuspectTimeout,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::super::routes::document;
use super::*;
use crate::metrics::tests::one;

pub(super) static API: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(&document::<Fake>()).unwrap());

/// A validator of a schema that may refer to those of the document.
fn validator(schema: &Value) -> jsonschema::Validator {
    let root = json!({"allOf": [schema], "components": API["components"]});
    jsonschema::draft202012::new(&root).unwrap()
}

#[track_caller]
fn assert_valid(schema: &Value, value: &Value, what: &str) {
    let errors: Vec<_> =
        validator(schema).iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{what}: {errors:#?} in {value:#}");
}

/// The operation of the document that a request is for, with its route and method. `None` for unknown routes and methods.
fn operation(method: &str, target: &str) -> Option<(String, &'static Value)> {
    let path = target.split('?').next().unwrap();
    let is_meant = |route: &str| {
        let (wanted, given): (Vec<_>, Vec<_>) = (route.split('/').collect(), path.split('/').collect());
        wanted.len() == given.len()
            && wanted.iter().zip(given).all(|(wanted, given)| wanted.starts_with('{') || *wanted == given)
    };
    let (route, item) = API["paths"].as_object().unwrap().iter().find(|(route, _)| is_meant(route))?;
    Some((format!("{method} {route}"), item.get(method.to_ascii_lowercase())?))
}

/// Fails if an answer is not as the document says. Returns the operation, if the document has it.
#[track_caller]
pub(super) fn assert_documented(method: &str, target: &str, status: u16, body: &str) -> Option<String> {
    let (name, operation) = operation(method, target)?;
    let answer = &operation["responses"][status.to_string()];
    let answer = answer["$ref"].as_str().and_then(|shared| API.pointer(&shared[1..])).unwrap_or(answer);
    assert!(answer.is_object(), "{name} answers {status}, and the document does not say so: {body}");
    if let Some(schema) = answer["content"].get("application/json").map(|content| &content["schema"]) {
        assert_valid(schema, &serde_json::from_str(body).unwrap(), &format!("{name}: {status}"));
    }
    Some(name)
}

#[test]
fn the_document_is_checked_in() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/openapi.json");
    if std::env::var_os("WRITE_REFERENCES").is_some() {
        std::fs::write(path, document::<Fake>()).unwrap();
    }
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text == document::<Fake>(), "{path} is out of date; `make references` writes it");
    let server = Running::start(Limits::default());
    assert_eq!(server.request("GET", "/openapi.json", ""), (200, document::<Fake>()));
}

const ALL_SETTINGS: &str = r#"{
    "policy": {"name": "latency-rr", "params": {"threshold": 1.5}, "class": "write"},
    "scheduler": {"name": "burst-credit", "params": {"share": "0.5"}},
    "limits": {"iops": 5000, "bandwidth": "1MiB", "burst": "2s"},
    "weight": 7, "hedge": "p95", "hedge-budget": "3%", "disk": "a"}"#;

#[test]
fn every_operation_answers_as_the_document_says() {
    let server = Running::start(Limits::default());
    let mut seen = BTreeSet::new();
    for (method, target, body) in [
        ("GET", "/openapi.json", ""),
        ("GET", "/metrics", ""),
        ("GET", "/v1/status", ""),
        ("GET", "/v1/disks", ""),
        ("GET", "/healthz", ""),
        ("GET", "/readyz", ""),
        ("GET", "/v1/disks/a", ""),
        ("GET", "/v1/disks/a/explain", ""),
        ("GET", "/v1/disks/a/history", ""),
        ("GET", "/v1/slow", ""),
        ("GET", "/v1/events", ""),
        ("GET", "/v1/fences", ""),
        ("DELETE", "/v1/fences/b?force=true", ""),
        ("GET", "/v1/policies", ""),
        ("GET", "/v1/policy/detail", ""),
        ("GET", "/v1/schedulers", ""),
        ("GET", "/v1/scheduler/detail", ""),
        ("PUT", "/v1/settings", ALL_SETTINGS),
        ("GET", "/v1/disks?setting=hedge-budget&disk=a", ""),
        ("PUT", "/v1/injections", r#"{"path":"all","injection":{"latency-us":1,"jitter-us":2},"for-ms":5}"#),
        ("GET", "/v1/paths", ""),
        ("GET", "/v1/injections", ""),
        ("DELETE", "/v1/injections", ""),
        ("PUT", "/v1/paths", r#"{"path":"1","action":"drain","disk":"a"}"#),
        ("POST", "/v1/disks/a/paths", r#"{"address":"tcp://127.0.0.1:4420"}"#),
        ("DELETE", "/v1/disks/a/paths/1", ""),
        ("GET", "/v1/config", ""),
        ("POST", "/v1/config/reload?dry-run=true", ""),
        ("POST", "/v1/upgrade?force=true", ""),
        ("DELETE", "/v1/disks/b?force=true", ""),
    ] {
        let (status, answer) = server.request(method, target, body);
        assert_eq!(status, 200, "{method} {target}: {answer}");
        seen.extend(assert_documented(method, target, status, &answer));
    }
    // The disks of the test refuse only this.
    let new = DiskConfig::new("/s".parse().unwrap(), "nqn.a".parse().unwrap(), vec![]);
    let body = serde_json::to_string(&DiskConfig { name: "a".parse().unwrap(), ..new }).unwrap();
    let (status, answer) = server.request("POST", "/v1/disks", &body);
    assert_eq!(status, 409, "{answer}");
    seen.extend(assert_documented("POST", "/v1/disks", status, &answer));

    let documented = API["paths"].as_object().unwrap().iter().flat_map(|(route, item)| {
        item.as_object().unwrap().keys().map(move |method| format!("{} {route}", method.to_ascii_uppercase()))
    });
    assert_eq!(seen, documented.collect());
}

#[test]
fn a_read_only_socket_refuses_every_change() {
    let server = Running::start_read_only();
    for (route, item) in API["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let target = route.replace("{disk}", "a").replace("{path}", "1");
            let (status, answer) = server.request(&method.to_ascii_uppercase(), &target, "{}");
            assert_eq!(status, if method == "get" { 200 } else { 403 }, "{method} {route}: {answer}");
        }
    }
}

#[test]
fn values_with_everything_in_them_are_as_the_document_says() {
    let check = |name: &str, value: Value| {
        let schema = json!({"$ref": format!("#/components/schemas/{name}")});
        assert_valid(&schema, &value, name);
    };
    let (status, mut paths, scheduling) = one();
    // The server fills these in.
    for path in &mut paths {
        (path.io_share, path.io_share_1s, path.io_share_60s) = (0.5, 0.0, 1.0);
    }
    check("Status", json!(status));
    check("Path", json!(paths[0]));
    check("SchedulerDetail", json!(scheduling[0]));
}

/// Checks that the type accepts the examples of its schema, that they conform, and that the other texts do neither.
#[track_caller]
fn check_schema<T: ToSchema + DeserializeOwned>(refused: &[Value]) {
    let schema = serde_json::to_value(T::schema()).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let accepted = |value: &Value| serde_json::from_value::<T>(value.clone()).is_ok();
    let examples = schema["examples"].as_array().cloned().unwrap_or_else(|| schema["enum"].as_array().unwrap().clone());
    assert!(!examples.is_empty(), "{}", T::name());
    for example in &examples {
        assert_eq!((accepted(example), validator.is_valid(example)), (true, true), "{}: {example}", T::name());
    }
    for value in refused {
        assert_eq!((accepted(value), validator.is_valid(value)), (false, false), "{}: {value}", T::name());
    }
}

#[test]
fn types_accept_what_their_schemas_say() {
    check_schema::<QueueCount>(&[json!(0), json!(257), json!("1"), json!(null), json!(1.5)]);
    check_schema::<DiskName>(&[json!(""), json!("-a"), json!("."), json!(".."), json!("a/b"), json!("n".repeat(65))]);
    check_schema::<SocketPath>(&[json!(""), json!("/run/"), json!("a\0b"), json!("n".repeat(108)), json!(1)]);
    check_schema::<Nqn>(&[json!(""), json!("a b"), json!("n".repeat(224))]);
    check_schema::<SocketMode>(&[json!("660"), json!("0o660"), json!("0680"), json!("432"), json!(660), json!(1.5)]);
    check_schema::<Account>(&[json!(""), json!("a b"), json!("a:b"), json!("-1"), json!(-1), json!(u32::MAX)]);
    check_schema::<KeepAliveTmo>(&[json!(0), json!(601), json!("off"), json!("5ms"), json!(null)]);
    check_schema::<SuspectTimeout>(&[json!(300), json!("300"), json!("1.5x"), json!("1 parsec"), json!("")]);
    check_schema::<LimitBurst>(&[json!("2x"), json!(0)]);
    check_schema::<LimitIops>(&[json!(0), json!(1_000_000_001), json!("1k"), json!("1KiB"), json!(1.5)]);
    check_schema::<LimitBandwidth>(&[json!(4095), json!("1MB"), json!("on"), json!([])]);
    check_schema::<MaxTransfer>(&[json!(4095), json!("1GiB"), json!("off"), json!("")]);
    check_schema::<PollUs>(&[json!(0), json!(1001), json!("0"), json!("1001"), json!("on"), json!("5s")]);
    check_schema::<Hedge>(&[json!("p49.9"), json!("p100"), json!("95"), json!("p99.99"), json!(95), json!("on")]);
    check_schema::<HedgeBudget>(&[json!("0%"), json!("5.1%"), json!("0.05%"), json!("5"), json!(".5%"), json!("0.0%")]);
    check_schema::<PathAddress>(&[
        json!(""),
        json!("127.0.0.1"),
        json!("rdma://h"),
        json!("tcp://"),
        json!("tcp://a b"),
    ]);
    check_schema::<DiscoveryAddress>(&[json!("storage"), json!("tcp://h:x")]);
    check_schema::<PathSelector>(&[json!(""), json!("+1"), json!("rdma://h:1"), json!("a:b"), json!(1)]);
    check_schema::<InjectedLatency>(&[json!(0), json!(60_000_001)]);
    check_schema::<InjectedRate>(&[json!(65_535), json!("1MiB")]);
    check_schema::<InjectedShare>(&[json!(0), json!(1_000_001)]);
    check_schema::<InjectedMilliseconds>(&[json!(0), json!(86_400_001)]);
    check_schema::<mpath_api::types::InjectedStatus>(&[json!("error"), json!(1)]);
}
