// The state that frames add up to. One instance reads one stream from its start.

import { FrameType, type Frame } from './frames'
import type { Message } from './types'

const text = new TextDecoder()

async function inflate(data: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([data as BlobPart]).stream().pipeThrough(new DecompressionStream('deflate'))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}

/** Adds the bytes of a difference, modulo 256. */
export function addDifference(planes: Uint8Array, difference: Uint8Array): Uint8Array {
  const sum = new Uint8Array(planes.length)
  for (let i = 0; i < sum.length; i++) sum[i] = planes[i] + difference[i]
  return sum
}

export class StreamState {
  #planes: Uint8Array | null = null
  #bytes = 0
  /** The newest message of each kind, for a page that joins later. */
  readonly newest = new Map<Message['kind'], Message>()

  /** Returns the frame as a message; null for a type of a later version. Throws if it contradicts what came before. */
  async apply(frame: Frame): Promise<Message | null> {
    const message = await this.#decode(frame)
    if (message === null) return null
    if (message.kind === 'topology') this.newest.delete('columns')
    this.newest.set(message.kind, message)
    return message
  }

  async #decode(frame: Frame): Promise<Message | null> {
    switch (frame.type) {
      case FrameType.full:
      case FrameType.difference:
        return this.#columns(frame)
      case FrameType.hello: {
        const hello = json(frame)
        if (hello.version !== 1) throw new Error(`the server speaks version ${hello.version} of the stream, this page 1`)
        return { kind: 'hello', hello }
      }
      case FrameType.topology: {
        const topology = json(frame)
        const switches = topology.switches.length
        const cables = topology.cables.filter((cable: { a: number; b: number }) => cable.a < switches && cable.b < switches)
        this.#bytes = 6 * cables.length
        this.#planes = null
        return { kind: 'topology', topology }
      }
      case FrameType.events:
        return { kind: 'events', events: json(frame) }
      case FrameType.heartbeat:
        return { kind: 'heartbeat', heartbeat: json(frame) }
      case FrameType.moves:
        return { kind: 'moves', moves: json(frame) }
      case FrameType.notes:
        return { kind: 'notes', notes: json(frame) }
      default:
        return null
    }
  }

  async #columns(frame: Frame): Promise<Message> {
    if (frame.payload.length < 8) throw new Error('columns without their time')
    const view = new DataView(frame.payload.buffer, frame.payload.byteOffset, 8)
    const timeMs = Number(view.getBigUint64(0) / 1000n) / 1000
    const planes = await inflate(frame.payload.subarray(8))
    if (planes.length !== this.#bytes) throw new Error(`${planes.length} bytes of columns; the topology has ${this.#bytes}`)
    if (frame.type === FrameType.full) this.#planes = planes
    else if (this.#planes === null) throw new Error('a difference before full columns')
    else this.#planes = addDifference(this.#planes, planes)
    return { kind: 'columns', timeMs, planes: this.#planes }
  }
}

function json(frame: Frame) {
  return JSON.parse(text.decode(frame.payload))
}
