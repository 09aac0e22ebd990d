// A worker of one tab: a replay, or the live stream where the browser has no shared workers.

import { Follower, type Order } from './follow'

let follower: Follower | null = null

self.onmessage = (event: MessageEvent<Order>) => {
  follower?.stop()
  follower = new Follower(event.data, (message) => self.postMessage(message))
  void follower.run()
}
