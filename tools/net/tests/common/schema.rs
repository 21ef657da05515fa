//! The published schemas of all documents, `docs/network.schema.json` and `docs/wan.schema.json`, and a check of
//! documents against them.

#![allow(dead_code)]

use serde_json::Value;

/// The file with the schemas of `standfast net` and `tcptest`.
pub const NETWORK: &str = "network.schema.json";
/// The file with the schemas of `standfast wan`.
pub const WAN: &str = "wan.schema.json";

/// Checks like [`follows_in`], in the file of the network tests.
pub fn follows(form: &str, document: &Value) {
    follows_in(NETWORK, form, document);
}

/// Fails unless a document matches the schema of this name, and with it the schema of the whole file.
pub fn follows_in(file: &str, form: &str, document: &Value) {
    let schema = published(file);
    let one = &schema["definitions"][form];
    assert!(!one.is_null(), "no form {form} is published");
    if let Err(wrong) = check(one, &schema, document, form) {
        panic!("{wrong}\n{document:#}");
    }
    check(&schema, &schema, document, "document").unwrap();
}

pub fn published(file: &str) -> Value {
    let path = format!("{}/../../docs/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// All keywords of JSON Schema that the files use. A keyword that is not understood must not pass.
const KEYWORDS: [&str; 14] = [
    "$schema",
    "$ref",
    "title",
    "description",
    "definitions",
    "anyOf",
    "const",
    "enum",
    "type",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "minimum",
];

/// Checks that a value at `place` matches `schema`.
pub fn check(schema: &Value, root: &Value, value: &Value, place: &str) -> Result<(), String> {
    let keywords = schema.as_object().unwrap();
    for keyword in keywords.keys() {
        assert!(KEYWORDS.contains(&keyword.as_str()), "{place}: the keyword {keyword} is not understood");
    }
    if let Some(name) = schema["$ref"].as_str() {
        assert_eq!(keywords.len(), 1, "{place}: what is beside $ref does not count");
        return check(root.pointer(name.trim_start_matches('#')).unwrap(), root, value, place);
    }
    let wrong = |what: String| Err(format!("{place}: {what}"));
    if let Some(forms) = schema["anyOf"].as_array() {
        let failures: Vec<String> =
            forms.iter().filter_map(|form| check(form, root, value, place).err()).collect();
        if failures.len() == forms.len() {
            return wrong(failures.join("; "));
        }
    }
    if keywords.contains_key("const") && schema["const"] != *value {
        return wrong(format!("{value} is not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|allowed| !allowed.contains(value)) {
        return wrong(format!("{value} is none of {}", schema["enum"]));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|name| is(name, value)) {
        return wrong(format!("{value} is no {types:?}"));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        return wrong(format!("{number} is less than {least}"));
    }
    if let Some(fields) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                return wrong(format!("{name} is missing"));
            }
        }
        for (name, field) in fields {
            let place = format!("{place}.{name}");
            match schema["properties"].get(name) {
                Some(property) => check(property, root, field, &place)?,
                None if schema["additionalProperties"] == false => {
                    return Err(format!("{place} is not there"));
                }
                None => {}
            }
        }
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        if !schema["items"].is_null() {
            check(&schema["items"], root, item, &format!("{place}[{number}]"))?;
        }
    }
    Ok(())
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    }
}
