// Frames of the stream: u32 big-endian length of what follows, u8 type, payload.

export interface Frame {
  type: number
  payload: Uint8Array
}

export const FrameType = {
  hello: 1,
  topology: 2,
  full: 3,
  difference: 4,
  events: 5,
  heartbeat: 6,
  moves: 7,
  notes: 8
} as const

/** A longer frame means that this is not the stream. */
export const MOST_BYTES = 64 * 1024 * 1024

/** Cuts a stream of chunks into frames; throws RangeError at a length that no frame has. */
export class FrameReader {
  #pending = new Uint8Array(0)

  push(chunk: Uint8Array): Frame[] {
    let data = chunk
    if (this.#pending.length > 0) {
      data = new Uint8Array(this.#pending.length + chunk.length)
      data.set(this.#pending)
      data.set(chunk, this.#pending.length)
    }
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength)
    const frames: Frame[] = []
    let at = 0
    while (data.length - at >= 4) {
      const length = view.getUint32(at)
      if (length < 1 || length > MOST_BYTES) throw new RangeError(`a frame of ${length} bytes: this is not the stream`)
      if (data.length - at - 4 < length) break
      frames.push({ type: data[at + 4], payload: data.subarray(at + 5, at + 4 + length) })
      at += 4 + length
    }
    this.#pending = data.slice(at)
    return frames
  }
}
