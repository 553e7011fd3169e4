//! LV2's C interface: its structs by hand, the functions a host calls, the symbol by which it finds them.
//!
//! The structs are those of LV2 1.18 (lv2plug.in): core, urid, state, worker, options, log.
#![allow(unsafe_code, reason = "a host calls these functions through C, with pointers")]

use super::{
    atoms::{FILES, Names},
    room::{Audio, Desk, ORDERS, files_of, open, state_of},
};
use quiet_engine::{ProcessSpec, Result};
use quiet_types::{Frames, SampleRate};
use rustix::{
    io::Errno,
    mm::{MsyncFlags, msync},
};
use std::{
    cell::UnsafeCell,
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::PathBuf,
    ptr::{null, null_mut},
    slice::{from_raw_parts, from_raw_parts_mut},
    sync::{Mutex, PoisonError},
};

/// Longest block where the host names none, frames.
const BLOCK: u32 = 1024;
/// Audio in and out, level before and behind, latency, messages in and out: the order of the description in Turtle.
const PORTS: usize = 7;

#[repr(C)]
struct Feature {
    uri: *const c_char,
    data: *mut c_void,
}

#[repr(C)]
struct Map {
    handle: *mut c_void,
    map: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> u32>,
}

type Status = c_int;
const SUCCESS: Status = 0;
const UNKNOWN: Status = 1;

#[repr(C)]
struct Schedule {
    handle: *mut c_void,
    work: Option<unsafe extern "C" fn(*mut c_void, u32, *const c_void) -> Status>,
}

#[repr(C)]
struct HostOption {
    context: c_int,
    subject: u32,
    key: u32,
    size: u32,
    kind: u32,
    value: *const c_void,
}

#[repr(C)]
struct Log {
    handle: *mut c_void,
    printf: Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char, ...) -> c_int>,
    vprintf: *const c_void,
}

type Translate = Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_char>;

#[repr(C)]
struct MapPath {
    handle: *mut c_void,
    to_abstract: Translate,
    to_absolute: Translate,
}

#[repr(C)]
struct FreePath {
    handle: *mut c_void,
    free: Option<unsafe extern "C" fn(*mut c_void, *mut c_char)>,
}

type Features = *const *const Feature;
type Respond = Option<unsafe extern "C" fn(*mut c_void, u32, *const c_void) -> Status>;
type Store =
    Option<unsafe extern "C" fn(*mut c_void, u32, *const c_void, usize, u32, u32) -> Status>;
type Retrieve =
    Option<unsafe extern "C" fn(*mut c_void, u32, *mut usize, *mut u32, *mut u32) -> *const c_void>;

#[repr(C)]
struct Descriptor {
    uri: *const c_char,
    instantiate:
        unsafe extern "C" fn(*const Descriptor, f64, *const c_char, Features) -> *mut c_void,
    connect_port: unsafe extern "C" fn(*mut c_void, u32, *mut c_void),
    activate: unsafe extern "C" fn(*mut c_void),
    run: unsafe extern "C" fn(*mut c_void, u32),
    deactivate: Option<unsafe extern "C" fn(*mut c_void)>,
    cleanup: unsafe extern "C" fn(*mut c_void),
    extension_data: unsafe extern "C" fn(*const c_char) -> *const c_void,
}
// SAFETY: it is never written, and its pointers are to what is never written either.
unsafe impl Sync for Descriptor {}

#[repr(C)]
struct StateInterface {
    save: unsafe extern "C" fn(*mut c_void, Store, *mut c_void, u32, Features) -> Status,
    restore: unsafe extern "C" fn(*mut c_void, Retrieve, *mut c_void, u32, Features) -> Status,
}

#[repr(C)]
struct WorkerInterface {
    work: unsafe extern "C" fn(*mut c_void, Respond, *mut c_void, u32, *const c_void) -> Status,
    response: unsafe extern "C" fn(*mut c_void, u32, *const c_void) -> Status,
    end_run: Option<unsafe extern "C" fn(*mut c_void) -> Status>,
}

/// One plugin in a host. LV2's threading classes say who calls when: the audio class (`run`, `connect_port`,
/// `work_response`) one call at a time, and none beside the class of instantiation (`activate`, `restore`, `cleanup`).
struct Instance {
    names: Names,
    desk: Mutex<Desk>,
    audio: UnsafeCell<Audio>,
    ports: UnsafeCell<[*mut c_void; PORTS]>,
    schedule: *const Schedule,
    log: *const Log,
}

/// The data of a host's feature, or null.
///
/// # Safety
/// `features` is null or an array that ends with null.
unsafe fn feature<T>(features: Features, uri: &CStr) -> *const T {
    let mut at = features;
    while !at.is_null() {
        // SAFETY: the array goes on to its null, which was not reached yet.
        let one = unsafe { *at };
        // SAFETY: what is not null is a feature.
        let Some(one) = (unsafe { one.as_ref() }) else { break };
        // Hosts there are (lv2file 0.95) that end the array with a feature that was never filled in: its name is null, 1, or anything else
        // that lay on the stack.
        match is_named(one.uri, uri) {
            Some(true) => return one.data.cast_const().cast(),
            Some(false) => {}
            None => break,
        }
        at = at.wrapping_add(1);
    }
    null()
}

/// Whether the text at an address is `name`; `None` where no memory lies there.
fn is_named(text: *const c_char, name: &CStr) -> Option<bool> {
    for (at, byte) in name.to_bytes_with_nul().iter().enumerate() {
        let there = text.cast::<u8>().wrapping_add(at);
        if (at == 0 || there.addr().is_multiple_of(PAGE)) && !is_mapped(there) {
            return None;
        }
        // SAFETY: memory lies there, and its page was not left.
        if unsafe { there.read_volatile() } != *byte {
            return Some(false);
        }
    }
    Some(true)
}

/// The smallest page there is: what holds for it holds for each in it.
const PAGE: usize = 4096;

/// Whether memory lies at an address: this call asks the kernel for nothing else.
///
/// # Source
/// msync(2): `MS_ASYNC` does nothing since Linux 2.6.19, but says `ENOMEM` where no memory is mapped.
fn is_mapped(at: *const u8) -> bool {
    let page = at.map_addr(|address| address & !(PAGE - 1));
    // SAFETY: nothing is changed, wherever that is.
    let said = unsafe { msync(page.cast_mut().cast(), PAGE, MsyncFlags::ASYNC) };
    // Whatever else is wrong, such as a kernel with larger pages, says nothing of the address.
    said != Err(Errno::NOMEM)
}

/// # Safety
/// `features` is an array that ends with null.
unsafe fn names(features: Features) -> Option<Names> {
    // SAFETY: as promised to this function.
    let map = unsafe { feature::<Map>(features, c"http://lv2plug.in/ns/ext/urid#map") };
    // SAFETY: the data of this feature is such a struct.
    let map = unsafe { map.as_ref() }?;
    let call = map.map?;
    // SAFETY: the host's own function and handle, and a name that ends with zero.
    let number = |uri: &CStr| unsafe { call(map.handle, uri.as_ptr()) };
    Some(Names {
        path: number(c"http://lv2plug.in/ns/ext/atom#Path"),
        object: number(c"http://lv2plug.in/ns/ext/atom#Object"),
        sequence: number(c"http://lv2plug.in/ns/ext/atom#Sequence"),
        urid: number(c"http://lv2plug.in/ns/ext/atom#URID"),
        get: number(c"http://lv2plug.in/ns/ext/patch#Get"),
        set: number(c"http://lv2plug.in/ns/ext/patch#Set"),
        property: number(c"http://lv2plug.in/ns/ext/patch#property"),
        value: number(c"http://lv2plug.in/ns/ext/patch#value"),
        changed: number(c"http://lv2plug.in/ns/ext/state#StateChanged"),
        error: number(c"http://lv2plug.in/ns/ext/log#Error"),
        int: number(c"http://lv2plug.in/ns/ext/atom#Int"),
        longest: number(c"http://lv2plug.in/ns/ext/buf-size#maxBlockLength"),
        files: [
            number(c"urn:quietcores:strip#strip"),
            number(c"urn:quietcores:strip#amp"),
            number(c"urn:quietcores:strip#ir"),
        ],
    })
}

/// The longest block that the host's options name.
///
/// # Safety
/// `features` is an array that ends with null.
unsafe fn longest(features: Features, names: &Names) -> u32 {
    let uri = c"http://lv2plug.in/ns/ext/options#options";
    // SAFETY: as promised to this function.
    let mut at = unsafe { feature::<HostOption>(features, uri) };
    // SAFETY: an array that ends with an option of zeros, which was not reached yet.
    while let Some(option) = unsafe { at.as_ref() }.filter(|option| option.key != 0) {
        let value = option.value.cast::<i32>();
        if option.key == names.longest && option.kind == names.int && option.size == 4 {
            // SAFETY: an option of this type and size points at a number.
            let block = unsafe { value.read_unaligned() };
            return block.clamp(1, 1 << 16) as u32;
        }
        at = at.wrapping_add(1);
    }
    BLOCK
}

impl Instance {
    /// Says an error to the host's log, where it has one; not in real time.
    fn said<T>(&self, what: Result<T>) -> Option<T> {
        let error = match what {
            Ok(value) => return Some(value),
            Err(error) => error.to_string().replace('\0', " "),
        };
        // SAFETY: the host's feature lives as long as the instance.
        let log = unsafe { self.log.as_ref() };
        if let (Some(log), Ok(text)) = (log, CString::new(error))
            && let Some(printf) = log.printf
        {
            let (form, text) = (c"quietcores: %s\n".as_ptr(), text.as_ptr());
            // SAFETY: the host's own function and handle; the form takes one text.
            unsafe { printf(log.handle, self.names.error, form, text) };
        }
        None
    }
}

/// # Safety
/// `handle` is what `instantiate` gave, and `cleanup` was not called.
unsafe fn instance<'a>(handle: *mut c_void) -> &'a Instance {
    // SAFETY: as promised to this function.
    unsafe { &*handle.cast::<Instance>() }
}

/// # Safety
/// The caller is of the audio class or of the class of instantiation, and has no second one of these.
#[allow(clippy::mut_from_ref, reason = "the host promises that there is one caller")]
unsafe fn audio(instance: &Instance) -> &mut Audio {
    // SAFETY: as promised to this function.
    unsafe { &mut *instance.audio.get() }
}

unsafe extern "C" fn instantiate(
    _: *const Descriptor,
    rate: f64,
    _: *const c_char,
    features: Features,
) -> *mut c_void {
    // SAFETY: the host's array.
    let Some(names) = (unsafe { names(features) }) else { return null_mut() };
    // SAFETY: the host's array.
    let block = Frames(unsafe { longest(features, &names) });
    let rate = SampleRate(rate.round().clamp(1_000.0, 768_000.0) as u32);
    let Ok((desk, audio)) = open(ProcessSpec { rate, channels: 1, block }) else {
        return null_mut();
    };
    let instance = Instance {
        names,
        desk: Mutex::new(desk),
        audio: UnsafeCell::new(audio),
        ports: UnsafeCell::new([null_mut(); PORTS]),
        // SAFETY: the host's array.
        schedule: unsafe { feature(features, c"http://lv2plug.in/ns/ext/worker#schedule") },
        // SAFETY: the host's array.
        log: unsafe { feature(features, c"http://lv2plug.in/ns/ext/log#log") },
    };
    Box::into_raw(Box::new(instance)).cast()
}

unsafe extern "C" fn connect_port(handle: *mut c_void, port: u32, data: *mut c_void) {
    // SAFETY: the host's promise.
    let instance = unsafe { instance(handle) };
    // SAFETY: of the audio class: nobody else has it.
    let ports = unsafe { &mut *instance.ports.get() };
    if let Some(port) = ports.get_mut(port as usize) {
        *port = data;
    }
}

unsafe extern "C" fn activate(handle: *mut c_void) {
    // SAFETY: the host's promise.
    let instance = unsafe { instance(handle) };
    // SAFETY: of the class of instantiation.
    let audio = unsafe { audio(instance) };
    let mut desk = instance.desk.lock().unwrap_or_else(PoisonError::into_inner);
    let renewed = desk.renew(audio);
    drop(desk);
    instance.said(renewed);
}

/// What the host says, and what of it the worker is to do.
///
/// # Safety
/// Of the audio class; `control` is an atom.
unsafe fn hear(instance: &Instance, control: *const u8) {
    // SAFETY: the head of an atom.
    let size = unsafe { control.cast::<u32>().read() } as usize;
    // SAFETY: an atom is as long as it says, behind a head of 8 bytes; the host writes none of it now.
    let sequence = unsafe { from_raw_parts(control, size + 8) };
    // SAFETY: of the audio class.
    unsafe { audio(instance) }.hear(&instance.names, sequence);
    // SAFETY: the host's feature lives as long as the instance.
    let schedule = unsafe { instance.schedule.as_ref() };
    let call = schedule.and_then(|schedule| Some((schedule.handle, schedule.work?)));
    for n in 0..ORDERS {
        // SAFETY: of the audio class; it is given back at once, as the host's function may call `response`.
        let Some(order) = unsafe { audio(instance) }.order(n) else { break };
        let went = call.is_some_and(|(to, work)| {
            // SAFETY: the host's own function and handle; it copies the order.
            SUCCESS == unsafe { work(to, order.len() as u32, order.as_ptr().cast()) }
        });
        // SAFETY: of the audio class.
        unsafe { audio(instance) }.sent(n, order, went);
    }
}

unsafe extern "C" fn run(handle: *mut c_void, frames: u32) {
    // SAFETY: the host's promise.
    let instance = unsafe { instance(handle) };
    // SAFETY: of the audio class: nobody else has them.
    let ports = unsafe { *instance.ports.get() };
    let [input, output, before, behind, latency, control, notify] = ports;
    if !control.is_null() {
        // SAFETY: a port for atoms, and of the audio class.
        unsafe { hear(instance, control.cast()) };
    }
    // SAFETY: of the audio class; no function of the host is called any more.
    let audio = unsafe { audio(instance) };
    let levels = [before, behind].map(|port| {
        // SAFETY: a control port that is connected points at a number.
        unsafe { port.cast::<f32>().as_ref() }.copied().unwrap_or(0.0)
    });
    audio.level(levels);
    let (input, output) = (input.cast::<f32>(), output.cast::<f32>());
    let (mut at, frames) = (0, frames as usize);
    while at < frames && !input.is_null() && !output.is_null() {
        let count = (frames - at).min(audio.block());
        // SAFETY: so many samples are in the buffer, which may be the output's: it is read before that is written.
        audio.take(unsafe { from_raw_parts(input.wrapping_add(at), count) });
        let made = audio.play(count);
        // SAFETY: so many samples fit into the buffer; the input's slice is gone.
        unsafe { from_raw_parts_mut(output.wrapping_add(at), count) }.copy_from_slice(made);
        at += count;
    }
    // SAFETY: a control port that is connected points at a number.
    if let Some(port) = unsafe { latency.cast::<f32>().as_mut() } {
        *port = audio.latency as f32;
    }
    if !notify.is_null() {
        // SAFETY: the head of an atom, which says how much room is behind it.
        let size = unsafe { notify.cast::<u32>().read() } as usize;
        // SAFETY: so much room is there, as the host says; it reads it after this call.
        audio.tell(&instance.names, unsafe { from_raw_parts_mut(notify.cast::<u8>(), size + 8) });
    }
}

unsafe extern "C" fn cleanup(handle: *mut c_void) {
    // SAFETY: `instantiate` made it, and the host gives it back once.
    drop(unsafe { Box::from_raw(handle.cast::<Instance>()) });
}

unsafe extern "C" fn work(
    handle: *mut c_void,
    respond: Respond,
    to: *mut c_void,
    size: u32,
    data: *const c_void,
) -> Status {
    if data.is_null() {
        return UNKNOWN;
    }
    // SAFETY: the host's promise.
    let instance = unsafe { instance(handle) };
    // SAFETY: what `run` gave, copied by the host.
    let order = unsafe { from_raw_parts(data.cast::<u8>(), size as usize) };
    let mut desk = instance.desk.lock().unwrap_or_else(PoisonError::into_inner);
    let (answer, done) = desk.work(order);
    drop(desk);
    instance.said(done);
    let Some(respond) = respond else { return UNKNOWN };
    // SAFETY: the host's own function and handle; it copies the answer.
    unsafe { respond(to, answer.len() as u32, answer.as_ptr().cast()) }
}

unsafe extern "C" fn response(handle: *mut c_void, size: u32, data: *const c_void) -> Status {
    if data.is_null() {
        return UNKNOWN;
    }
    // SAFETY: the host's promise.
    let instance = unsafe { instance(handle) };
    // SAFETY: what `work` gave, copied by the host.
    let answer = unsafe { from_raw_parts(data.cast::<u8>(), size as usize) };
    // SAFETY: of the audio class.
    unsafe { audio(instance) }.answered(answer);
    SUCCESS
}

/// A path as the host has it: abstract for its state, absolute for us. What it does not translate stays.
///
/// # Safety
/// `features` is an array that ends with null.
unsafe fn translated(
    features: Features,
    path: &CStr,
    way: fn(&MapPath) -> Translate,
) -> Option<CString> {
    // SAFETY: as promised to this function.
    let map = unsafe { feature::<MapPath>(features, c"http://lv2plug.in/ns/ext/state#mapPath") };
    // SAFETY: the data of this feature is such a struct.
    let Some(map) = (unsafe { map.as_ref() }) else { return Some(path.to_owned()) };
    let call = way(map)?;
    // SAFETY: the host's own function and handle, and a text that ends with zero.
    let text = unsafe { call(map.handle, path.as_ptr()) };
    if text.is_null() {
        return None;
    }
    // SAFETY: the host's text ends with zero.
    let copy = unsafe { CStr::from_ptr(text) }.to_owned();
    // SAFETY: as promised to this function.
    let free = unsafe { feature::<FreePath>(features, c"http://lv2plug.in/ns/ext/state#freePath") };
    // SAFETY: the data of this feature is such a struct. A host without it, of before 2020, loses a few bytes.
    if let Some(free) = unsafe { free.as_ref() }
        && let Some(call) = free.free
    {
        // SAFETY: the host's own function and handle, and its own text, once.
        unsafe { call(free.handle, text) };
    }
    Some(copy)
}

unsafe extern "C" fn save(
    handle: *mut c_void,
    store: Store,
    to: *mut c_void,
    _: u32,
    features: Features,
) -> Status {
    /// Plain bytes; as a path is, the host may carry it to another machine.
    const POD_AND_PORTABLE: u32 = 3;
    let Some(store) = store else { return UNKNOWN };
    // SAFETY: the host's promise.
    let instance = unsafe { instance(handle) };
    let state = instance.desk.lock().unwrap_or_else(PoisonError::into_inner).state.clone();
    for (key, path) in instance.names.files.into_iter().zip(files_of(&state)) {
        let bytes = path.as_os_str().as_encoded_bytes();
        let Ok(path) = CString::new(bytes) else { return UNKNOWN };
        if path.is_empty() {
            continue;
        }
        // SAFETY: the host's array.
        let Some(path) = (unsafe { translated(features, &path, |map| map.to_abstract) }) else {
            return UNKNOWN;
        };
        let text = path.to_bytes_with_nul();
        let (from, kind) = (text.as_ptr().cast(), instance.names.path);
        // SAFETY: the host's own function and handle; it copies the text.
        let stored = unsafe { store(to, key, from, text.len(), kind, POD_AND_PORTABLE) };
        if stored != SUCCESS {
            return stored;
        }
    }
    SUCCESS
}

unsafe extern "C" fn restore(
    handle: *mut c_void,
    retrieve: Retrieve,
    from: *mut c_void,
    _: u32,
    features: Features,
) -> Status {
    let Some(retrieve) = retrieve else { return UNKNOWN };
    // SAFETY: the host's promise.
    let instance = unsafe { instance(handle) };
    let mut files = [const { PathBuf::new() }; FILES];
    for (key, file) in instance.names.files.into_iter().zip(&mut files) {
        let (mut size, mut kind, mut flags) = (0, 0, 0);
        // SAFETY: the host's own function and handle, and three places for its answer.
        let value = unsafe { retrieve(from, key, &mut size, &mut kind, &mut flags) };
        if value.is_null() || kind != instance.names.path {
            continue;
        }
        // SAFETY: the value is as long as the host says, and lives until this call ends.
        let bytes = unsafe { from_raw_parts(value.cast::<u8>(), size) };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let Ok(path) = CString::new(&bytes[..end]) else { return UNKNOWN };
        if path.is_empty() {
            continue;
        }
        // SAFETY: the host's array.
        let path = unsafe { translated(features, &path, |map| map.to_absolute) };
        let Some(Ok(path)) = path.map(CString::into_string) else { return UNKNOWN };
        *file = PathBuf::from(path);
    }
    // SAFETY: of the class of instantiation.
    let audio = unsafe { audio(instance) };
    let mut desk = instance.desk.lock().unwrap_or_else(PoisonError::into_inner);
    let done = desk.restore(audio, state_of(files));
    drop(desk);
    instance.said(done).map_or(UNKNOWN, |()| SUCCESS)
}

unsafe extern "C" fn extension_data(uri: *const c_char) -> *const c_void {
    static STATE: StateInterface = StateInterface { save, restore };
    static WORKER: WorkerInterface = WorkerInterface { work, response, end_run: None };
    // SAFETY: the host's text ends with zero.
    match unsafe { CStr::from_ptr(uri) }.to_bytes() {
        b"http://lv2plug.in/ns/ext/state#interface" => (&raw const STATE).cast(),
        b"http://lv2plug.in/ns/ext/worker#interface" => (&raw const WORKER).cast(),
        _ => null(),
    }
}

static PLUGIN: Descriptor = Descriptor {
    uri: c"urn:quietcores:strip".as_ptr(),
    instantiate,
    connect_port,
    activate,
    run,
    deactivate: None,
    cleanup,
    extension_data,
};

/// The symbol by which a host finds the plugin.
// SAFETY: no other library of a host's has this name in a scope of ours: it asks each for its own.
#[unsafe(no_mangle)]
extern "C" fn lv2_descriptor(index: u32) -> *const c_void {
    if index == 0 { (&raw const PLUGIN).cast() } else { null() }
}
