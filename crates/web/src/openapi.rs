//! The interface, described for programs: made of the same types that it speaks.

use crate::{
    api::{ApplyBody, LendBody, SoundBody},
    verbs::{VERBS, VerbDoor, Way},
};
use quiet_types::{
    Machine, Plan,
    check::Checked,
    compared::Compared,
    history::History,
    live::{Deed, JobWish, LiveEvent, LiveJob, LiveSound, Moment},
    plan::Status,
    play::Knobs,
    prediction::Prediction,
};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// The document, as OpenAPI 3.1 has it.
pub fn openapi() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    looks(&mut paths, &mut schemas);
    acts(&mut paths, &mut schemas);
    for door in VERBS {
        called(door, &mut paths, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "quietcores",
            "version": "1",
            "description": "What `quietcores serve` answers. Looking is free on loopback; what changes something needs `Authorization: Bearer TOKEN`, with the token that it printed. Errors are {\"error\": SENTENCE}.",
            "license": { "name": "MIT OR Apache-2.0" }
        },
        "servers": [{ "url": "http://127.0.0.1:7070" }],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } }
        }
    })
}

fn answer(schema: Value) -> Value {
    json!({
        "200": { "description": "Done", "content": { "application/json": { "schema": schema } } },
        "default": {
            "description": "Why not",
            "content": { "application/json": { "schema": {
                "type": "object", "properties": { "error": { "type": "string" } }
            } } }
        }
    })
}

fn of<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<T>().to_value()
}

fn query(name: &str, about: &str) -> Value {
    json!({ "name": name, "in": "query", "description": about, "schema": { "type": "string" } })
}

fn looks(paths: &mut Map<String, Value>, schemas: &mut SchemaGenerator) {
    let mut look = |path: &str, about: &str, schema: Value, parameters: Value| {
        let get = json!({
            "summary": about, "security": [{}, { "token": [] }],
            "parameters": parameters, "responses": answer(schema)
        });
        paths.insert(format!("/api/v1/{path}"), json!({ "get": get }));
    };
    let list = |of: Value| json!({ "type": "array", "items": of });
    look("live", "The machine now", of::<Moment>(schemas), json!([]));
    look("status", "The shield, whole", of::<Status>(schemas), json!([]));
    look("machine", "The machine, as `inspect --json` has it", of::<Machine>(schemas), json!([]));
    look("plan", "The steps that apply would take", of::<Plan>(schemas), json!([]));
    look("events", "What happened, oldest first", list(of::<LiveEvent>(schemas)), json!([]));
    look("sound", "Engines that play", list(of::<LiveSound>(schemas)), json!([]));
    let filter = query("filter", "Conditions, as `quietcores runs` takes them");
    let last = query("last", "How many of the newest; 500 at most");
    look("runs", "The history", of::<History>(schemas), json!([filter, last]));
    let sides = json!([query("a", "Ids, joined by commas"), query("b", "Ids, joined by commas")]);
    look("compare", "B compared with A", of::<Compared>(schemas), sides);
    let id = json!([{
        "name": "id", "in": "path", "required": true,
        "description": "An id, or the beginning of one", "schema": { "type": "string" }
    }]);
    look(
        "runs/{id}",
        "What is kept under an id: a run, a proof ...",
        json!({ "type": "object" }),
        id,
    );
    let name = json!([{
        "name": "id", "in": "path", "required": true,
        "description": "The engine's control socket, as the stream has it", "schema": { "type": "string" }
    }]);
    look("sound/{id}", "The parameters of the strip that sounds", of::<Knobs>(schemas), name);
    look(
        "check",
        "What stands in the way of low latency, as `check --json` has it",
        of::<Checked>(schemas),
        json!([]),
    );
    let predict = json!([
        query("runs", "Ids, joined by commas"),
        query("frames", "Buffers in frames, joined by commas"),
        query("rate", "Frames a second"),
        query("load", "Part of each period that the work takes, 0 to 0.99")
    ]);
    look(
        "predict",
        "How late it can get, and which buffer stands it, as `predict --json` has it",
        of::<Prediction>(schemas),
        predict,
    );
    let report = json!({
        "summary": "The page of what is kept under an id, as `report` writes it", "security": [{}, { "token": [] }],
        "parameters": [{ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } }],
        "responses": { "200": {
            "description": "One self-contained page", "content": { "text/html": { "schema": { "type": "string" } } }
        } }
    });
    paths.insert("/api/v1/runs/{id}/report".into(), json!({ "get": report }));
    jobs(paths, schemas);
    let stream = json!({
        "summary": "The stream: each event's data is a moment", "security": [{}, { "token": [] }],
        "parameters": [{
            "name": "after", "in": "query", "required": false, "schema": { "type": "integer" },
            "description": "The number of the moment that was seen last: the first one then has what happened since"
        }],
        "responses": { "200": {
            "description": "Server-sent events",
            "content": { "text/event-stream": { "schema": of::<Moment>(schemas) } }
        } }
    });
    paths.insert("/api/v1/stream".into(), json!({ "get": stream }));
}

/// A verb that is called.
fn called(door: &VerbDoor, paths: &mut Map<String, Value>, schemas: &mut SchemaGenerator) {
    let prints = (door.prints)(schemas);
    let responses = match door.way {
        Way::Look | Way::Act => answer(prints),
        Way::Job => {
            let mut begun = answer(of::<LiveJob>(schemas));
            begun["200"]["description"] =
                json!("The job that has begun; what it comes to is of the schema x-result");
            begun["200"]["x-result"] = prints;
            begun
        }
        Way::Text => json!({ "200": { "description": "A file", "content": {
            "text/plain": { "schema": { "type": "string" } }
        } } }),
    };
    let arguments = door.arguments();
    let file = door.file().map(|most| {
        json!({ "content": { "application/octet-stream": {
            "schema": { "type": "string", "format": "binary", "maxLength": most }
        } } })
    });
    let security =
        if door.looks() { json!([{}, { "token": [] }]) } else { json!([{ "token": [] }]) };
    let mut told = json!({
        "summary": door.about, "description": format!("`quietcores {}`", door.verb),
        "security": security, "responses": responses
    });
    if door.looks() || file.is_some() {
        let parameter = |(name, schema)| json!({ "name": name, "in": "query", "schema": schema });
        told["parameters"] = arguments.into_iter().map(parameter).collect();
    } else {
        let body =
            json!({ "type": "object", "properties": arguments, "additionalProperties": false });
        told["requestBody"] = json!({ "content": { "application/json": { "schema": body } } });
    }
    if let Some(file) = file {
        told["requestBody"] = file;
    }
    let entry = paths.entry(format!("/api/v1/{}", door.path)).or_insert_with(|| json!({}));
    entry[if door.looks() { "get" } else { "post" }] = told;
}

/// Long work: begun by POST, told of by GET, ended by cancel.
fn jobs(paths: &mut Map<String, Value>, schemas: &mut SchemaGenerator) {
    let (job, wish) = (of::<LiveJob>(schemas), of::<JobWish>(schemas));
    let number =
        json!([{ "name": "id", "in": "path", "required": true, "schema": { "type": "integer" } }]);
    let looks = json!([{}, { "token": [] }]);
    let acts = json!([{ "token": [] }]);
    paths.insert(
        "/api/v1/jobs".into(),
        json!({
            "get": {
                "summary": "Jobs, oldest first", "security": looks,
                "responses": answer(json!({ "type": "array", "items": job }))
            },
            "post": {
                "summary": "Begin long work; one job at a time", "security": acts,
                "requestBody": { "content": { "application/json": { "schema": wish } } },
                "responses": answer(job.clone())
            }
        }),
    );
    paths.insert("/api/v1/jobs/{id}".into(), json!({ "get": {
        "summary": "A job", "security": looks, "parameters": number, "responses": answer(job.clone())
    } }));
    paths.insert(
        "/api/v1/jobs/{id}/result".into(),
        json!({ "get": {
        "summary": "What a job printed that kept nothing under an id", "security": looks,
        "parameters": number, "responses": answer(json!({ "type": "object" }))
    } }),
    );
    paths.insert(
        "/api/v1/jobs/{id}/cancel".into(),
        json!({ "post": {
        "summary": "End a job: it keeps what it has and puts the machine back", "security": acts,
        "parameters": number, "responses": answer(job.clone())
    } }),
    );
    paths.insert("/api/v1/jobs/{id}/events".into(), json!({ "get": {
        "summary": "A job's progress: each event's data is the job; with its end the stream ends",
        "security": looks, "parameters": number,
        "responses": { "200": {
            "description": "Server-sent events", "content": { "text/event-stream": { "schema": job } }
        } }
    } }));
}

fn acts(paths: &mut Map<String, Value>, schemas: &mut SchemaGenerator) {
    let done = of::<Deed>(schemas);
    let none = json!({ "type": "object" });
    let mut act = |path: &str, about: &str, body: Value, result: Value| {
        let post = json!({
            "summary": about, "security": [{ "token": [] }],
            "requestBody": { "content": { "application/json": { "schema": body } } },
            "responses": answer(result)
        });
        let entry = paths.entry(format!("/api/v1/{path}")).or_insert_with(|| json!({}));
        if let Some(entry) = entry.as_object_mut() {
            entry.insert("post".into(), post);
        }
    };
    act("apply", "Put the shield up", of::<ApplyBody>(schemas), done.clone());
    act("confirm", "Keep it", none.clone(), done.clone());
    act("revert", "Put the machine back", none.clone(), done.clone());
    act("lend", "Lend its CPUs to everybody", of::<LendBody>(schemas), done.clone());
    act("take-back", "Take them back", none.clone(), done);
    act("sound", "Ask a playing engine", of::<SoundBody>(schemas), none);
    let dropped = json!({
        "summary": "Give a playing engine an amp (.nam, .json, .aidax) or an impulse response (.wav) in place of its own; 32 MiB at most",
        "security": [{ "token": [] }],
        "parameters": [
            query("engine", "The engine's control socket, as the stream has it"),
            query("name", "The file's name, which tells what it is")
        ],
        "requestBody": { "content": { "application/octet-stream": {
            "schema": { "type": "string", "format": "binary" }
        } } },
        "responses": answer(of::<Deed>(schemas))
    });
    paths.insert("/api/v1/drop".into(), json!({ "post": dropped }));
}
