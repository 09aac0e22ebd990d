// A shared worker: one live stream for all tabs of a browser.

import { Follower } from './follow'
import type { Message } from './types'

const scope = self as unknown as { onconnect: (event: MessageEvent) => void }
const ports = new Set<MessagePort>()
let follower: Follower | null = null

function tell(message: Message): void {
  for (const port of ports) port.postMessage(message)
}

function start(): void {
  follower?.stop()
  follower = new Follower({ url: new URL('/v1/view/stream', location.origin).href, reconnect: true }, tell)
  void follower.run()
}

scope.onconnect = (event) => {
  const port = event.ports[0]
  port.onmessage = (order: MessageEvent<'start' | 'restart' | 'bye'>) => {
    if (order.data === 'bye') {
      ports.delete(port)
      if (ports.size === 0) {
        follower?.stop()
        follower = null
      }
      return
    }
    ports.add(port)
    const connection = follower?.state.newest.get('connection')
    const over = connection?.kind === 'connection' && connection.connection.state === 'lost' && connection.connection.retryMs === null
    if (follower === null || over || order.data === 'restart') start()
    else for (const message of follower.state.newest.values()) port.postMessage(message)
  }
  port.start()
}
