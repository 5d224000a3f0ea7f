//! The API reference: the OpenAPI document as a page for people.

use std::fmt::Write;

use serde_json::Value;

/// The document, which the API's code generates.
const OPENAPI: &str = include_str!("../../../../docs/openapi.json");

/// Methods in the order in which a route lists them.
const METHODS: [&str; 4] = ["get", "post", "put", "delete"];

/// The page, in Markdown.
pub(crate) fn page() -> String {
    let api: Value = serde_json::from_str(OPENAPI).expect("the code generates valid JSON");
    let api = &api;
    let mut text = "\
# API reference

Made from [openapi.json](openapi.json). [The API](operating/api.md) has examples, names and limits.

Contents: [routes](#routes), [errors](#errors), [types](#types).

## Routes

"
    .to_owned();
    for (route, item) in object(&api["paths"]) {
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                describe(&mut text, &method.to_uppercase(), route, operation);
            }
        }
    }
    text.push_str("## Errors\n\nThe body of every error is [ErrorBody](#errorbody).\n\n| status | code | meaning |\n|--:|---|---|\n");
    text.push_str("| 404 | `unknown-route` | the route does not exist |\n");
    text.push_str("| 405 | `method-not-allowed` | the route does not take this method |\n");
    let mut rows: Vec<_> = errors(api).collect();
    rows.sort();
    rows.dedup();
    for (status, code, meaning) in rows {
        let _ = writeln!(text, "| {status} | `{code}` | {meaning} |");
    }
    text.push_str("\n## Types\n\n");
    for (name, schema) in object(&api["components"]["schemas"]) {
        let _ = writeln!(text, "### {name}\n");
        type_of(&mut text, schema);
    }
    text
}

fn describe(text: &mut String, method: &str, route: &str, operation: &Value) {
    let _ = writeln!(text, "### {method} {route}\n\n{}\n", text_of(&operation["summary"]));
    if let Some(more) = operation["description"].as_str() {
        let _ = writeln!(text, "{more}\n");
    }
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let rows: Vec<_> = parameters
        .map(|of| {
            let (name, place) = (text_of(&of["name"]), text_of(&of["in"]));
            format!("| `{name}` | {place} | {} | {} |\n", cell(&form(&of["schema"])), cell(&meaning(of)))
        })
        .collect();
    if !rows.is_empty() {
        let _ = writeln!(text, "| parameter | in | type | meaning |\n|---|---|---|---|\n{}", rows.concat());
    }
    if let Some(body) = operation["requestBody"]["content"].get("application/json") {
        let _ = writeln!(text, "Body: {}\n", form(&body["schema"]));
    }
    let answers = object(&operation["responses"]["200"]["content"]);
    let answers: Vec<_> = answers.map(|(kind, of)| format!("{} (`{kind}`)", form(&of["schema"]))).collect();
    let codes: Vec<_> = object(&operation["responses"])
        .filter_map(|(status, answer)| {
            let shared = answer["$ref"].as_str()?;
            let codes = shared.rsplit('/').next()?.split('.').map(|code| format!("`{code}`")).collect::<Vec<_>>();
            Some(format!("{status} {}", codes.join(", ")))
        })
        .collect();
    let _ = writeln!(text, "Answer: {}\n\nErrors: {}\n", answers.join(", or "), codes.join("; "));
}

/// Status, code and meaning of each error that an operation can have.
fn errors(api: &Value) -> impl Iterator<Item = (&str, String, String)> {
    let operations = object(&api["paths"]).flat_map(|(_, item)| object(item));
    let answers = operations.flat_map(|(_, operation)| object(&operation["responses"]));
    answers.filter_map(|(status, answer)| Some((status, api.pointer(&answer["$ref"].as_str()?[1..])?))).flat_map(
        |(status, answer)| {
            let description = text_of(&answer["description"]);
            let parts = description.split_terminator(". ").map(|part| part.trim_end_matches('.'));
            let of = |part: &str| {
                let (code, meaning) = part[1..].split_once("`: ").expect("a code and its meaning");
                (status, code.to_owned(), meaning.to_owned())
            };
            parts.map(of).collect::<Vec<_>>()
        },
    )
}

/// A named type: what it is, and its fields.
fn type_of(text: &mut String, schema: &Value) {
    if let Some(description) = schema["description"].as_str() {
        let _ = writeln!(text, "{}\n", description.replace("[`", "`").replace("`]", "`"));
    }
    let parts = schema["allOf"].as_array().map_or(vec![schema], |all| all.iter().collect());
    for part in &parts {
        if let Some(name) = reference_to(part) {
            let _ = writeln!(text, "It has the fields of {name}.\n");
        }
    }
    let mut rows = String::new();
    for part in &parts {
        let required: Vec<_> = part["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, field) in part["properties"].as_object().into_iter().flatten() {
            let optional = if required.contains(&&**name) { "" } else { ", optional" };
            let _ = writeln!(rows, "| `{name}` | {}{optional} | {} |", cell(&form(field)), cell(&meaning(field)));
        }
    }
    if rows.is_empty() {
        if parts.len() == 1 {
            let _ = writeln!(text, "{}\n", form(schema));
        }
    } else {
        let _ = writeln!(text, "| field | type | meaning |\n|---|---|---|\n{rows}");
    }
}

/// The form of a value, in a few words.
fn form(schema: &Value) -> String {
    if let Some(name) = reference_to(schema) {
        return name;
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[choice].as_array() {
            return choices.iter().map(form).collect::<Vec<_>>().join(" or ");
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        // A word, or the `false` that YAML 1.1 makes of `off`.
        let shown = |word: &Value| word.as_str().map_or_else(|| format!("`{word}`"), |word| format!("`{word}`"));
        return words.iter().map(shown).collect::<Vec<_>>().join(", ");
    }
    if schema["type"] == "array" {
        return format!("list of {}", form(&schema["items"]));
    }
    if let Some(fields) = schema["properties"].as_object() {
        let fields: Vec<_> = fields.iter().map(|(name, field)| format!("`{name}`: {}", form(field))).collect();
        return format!("{{{}}}", fields.join("; "));
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        kind => kind.as_str().unwrap_or("any value").to_owned(),
    };
    match (schema["minimum"].as_u64(), schema["maximum"].as_u64(), schema["pattern"].as_str()) {
        (Some(min), Some(max), _) => format!("{kinds} from {min} to {max}"),
        (_, _, Some(pattern)) => format!("{kinds} like `{pattern}`"),
        _ => kinds,
    }
}

/// A link to the named type that a schema refers to.
fn reference_to(schema: &Value) -> Option<String> {
    let name = schema["$ref"].as_str()?.rsplit('/').next()?;
    Some(format!("[{name}](#{})", name.to_lowercase()))
}

/// The description of a field or parameter, or of the value that it may have.
fn meaning(of: &Value) -> String {
    let choices = of["oneOf"].as_array().into_iter().flatten();
    let description = [of].into_iter().chain(choices).find_map(|of| of["description"].as_str());
    description.unwrap_or_default().replace("[`", "`").replace("`]", "`")
}

/// A text for one cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

fn text_of(value: &Value) -> &str {
    value.as_str().expect("the code of the API writes a text here")
}

fn object(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(key, value)| (&**key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_within_the_page_leads_to_a_heading() {
        let page = page();
        let headings: Vec<_> = page
            .lines()
            .filter_map(|line| Some(line.trim_start_matches('#').strip_prefix(' ')?.to_lowercase()))
            .collect();
        let links: Vec<_> = page.split("](#").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
        assert!(links.len() > 100, "{} links", links.len());
        for link in links {
            assert!(headings.iter().any(|heading| heading == link), "{link}");
        }
    }

    #[test]
    fn a_route_has_its_parameters_body_answer_and_errors() {
        let page = page();
        let route = page.split("### PUT /v1/settings\n").nth(1).unwrap().split("\n### ").next().unwrap();
        assert!(["\nBody: [", "\nAnswer: ", "\nErrors: "].iter().all(|part| route.contains(part)), "{route}");
    }
}
