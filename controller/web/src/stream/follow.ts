// Reads one stream to its end and, if it is live, reconnects. Runs in a worker.

import { FrameReader } from './frames'
import { StreamState } from './state'
import type { Message } from './types'

export interface Order {
  url: string
  reconnect: boolean
}

const LONGEST_WAIT_MS = 10_000

/** Returns the server's one-line reason of a refusal. */
async function detailOf(response: Response): Promise<string> {
  const type = response.headers.get('content-type') ?? ''
  if (type.includes('json')) {
    const problem = await response.json()
    if (typeof problem.detail === 'string') return problem.detail
  }
  return `the server answered ${response.status}`
}

export class Follower {
  state = new StreamState()
  #stop = new AbortController()

  constructor(
    private readonly order: Order,
    private readonly post: (message: Message) => void
  ) {}

  stop(): void {
    this.#stop.abort()
  }

  async run(): Promise<void> {
    let wait = 500
    while (!this.#stop.signal.aborted) {
      this.#tell({ kind: 'connection', connection: { state: 'connecting' } })
      let detail = 'the server closed the stream'
      let status: number | null = null
      try {
        const response = await fetch(this.order.url, { signal: this.#stop.signal, cache: 'no-store', credentials: 'same-origin' })
        status = response.status
        if (response.ok && response.body !== null) {
          await this.#read(response.body)
          wait = 500
          if (!this.order.reconnect) {
            this.#tell({ kind: 'connection', connection: { state: 'ended' } })
            return
          }
        } else detail = await detailOf(response)
      } catch (error) {
        if (this.#stop.signal.aborted) return
        detail = error instanceof TypeError ? 'the server does not answer' : String((error as Error).message)
      }
      const final = status === 401 || status === 403 || !this.order.reconnect
      this.#tell({ kind: 'connection', connection: { state: 'lost', detail, status, retryMs: final ? null : wait } })
      if (final) return
      await new Promise((resolve) => setTimeout(resolve, wait))
      wait = Math.min(LONGEST_WAIT_MS, wait * 2)
    }
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const fresh = new StreamState()
    const frames = new FrameReader()
    const reader = body.getReader()
    this.state = fresh
    this.#tell({ kind: 'connection', connection: { state: 'open' } })
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      for (const frame of frames.push(value)) {
        const message = await fresh.apply(frame)
        if (message !== null) this.post(message)
      }
    }
  }

  #tell(message: Message): void {
    this.state.newest.set(message.kind, message)
    this.post(message)
  }
}
