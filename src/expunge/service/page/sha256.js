// SHA-256, and the proof that a log continues another (RFC 6962, section 2.1.2). The browser's own hash is only there
// on pages with TLS, and checking needs a dozen hashes, so this is enough.

const K = Uint32Array.from(
  primes(64).map((each) => Math.floor((Math.cbrt(each) % 1) * 2 ** 32)),
);
const START = primes(8).map((each) => Math.floor((Math.sqrt(each) % 1) * 2 ** 32));

function primes(most) {
  const found = [];
  for (let each = 2; found.length < most; each += 1) if (found.every((one) => each % one)) found.push(each);
  return found;
}

const turn = (value, bits) => (value >>> bits) | (value << (32 - bits));

export function sha256(bytes) {
  const size = bytes.length;
  const padded = new Uint8Array(((size + 8) >> 6) * 64 + 64);
  padded.set(bytes);
  padded[size] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(size / 2 ** 29));
  view.setUint32(padded.length - 4, size << 3);
  const state = Uint32Array.from(START);
  const w = new Uint32Array(64);
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 64; i += 1) {
      if (i < 16) {
        w[i] = view.getUint32(at + 4 * i);
        continue;
      }
      const [a, b] = [w[i - 15], w[i - 2]];
      w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ (a >>> 3)) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ (b >>> 10));
    }
    let [a, b, c, d, e, f, g, k] = state;
    for (let i = 0; i < 64; i += 1) {
      const one = (k + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i]) >>> 0;
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) >>> 0;
      [k, g, f, e, d, c, b, a] = [g, f, e, (d + one) >>> 0, c, b, a, (one + two) >>> 0];
    }
    [a, b, c, d, e, f, g, k].forEach((value, i) => (state[i] = state[i] + value));
  }
  const found = new Uint8Array(32);
  state.forEach((value, i) => new DataView(found.buffer).setUint32(4 * i, value));
  return found;
}

export const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (each) => parseInt(each, 16));
export const toHex = (bytes) => Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("");

function join(left, right) {
  const both = new Uint8Array(65);
  both[0] = 1;
  both.set(left, 1);
  both.set(right, 33);
  return sha256(both);
}

// Whether a log of `size` entries and this root begins with the `oldSize` entries of the older root. All in hex.
export function continues(oldSize, oldRoot, size, root, proof) {
  if (oldSize > size) return false;
  if (oldSize === size) return oldRoot === root && proof.length === 0;
  if (oldSize === 0) return proof.length === 0;
  const path = proof.map(fromHex);
  if ((oldSize & (oldSize - 1)) === 0) path.unshift(fromHex(oldRoot));
  if (!path.length) return false;
  let [node, last] = [oldSize - 1, size - 1];
  while (node & 1) [node, last] = [node >>> 1, last >>> 1];
  let old = path[0];
  let all = path[0];
  for (const each of path.slice(1)) {
    if (last === 0) return false;
    if (node & 1 || node === last) {
      old = join(each, old);
      all = join(each, all);
      while (node && !(node & 1)) [node, last] = [node >>> 1, last >>> 1];
    } else {
      all = join(all, each);
    }
    [node, last] = [node >>> 1, last >>> 1];
  }
  return last === 0 && toHex(old) === oldRoot && toHex(all) === root;
}
